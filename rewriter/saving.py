"""Writing a model so that a reader finds the old file or the new one, never a part.

A file is written under a temporary name in the target's folder, synced and renamed; whatever happens, the temporary
file goes. A symbolic link at the target is followed and stays; an existing file's permissions are kept.

External data stays where it is when the output lies in the input's folder: both models share it. Elsewhere the data
files are copied beside the output under the same relative names (by reference where the file system can): first every
byte is written, then the data files are renamed, the model last. A data file that already exists there is left alone if
it has the same content, and refused otherwise unless `overwrite_data` is set: another model may depend on it.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import onnx

from rewriter.errors import ExternalDataError, OutputError


def serialize(proto: onnx.ModelProto) -> bytes:
    """The bytes of a model, the same on every run.

    Raises:
        OutputError: they would be 2 GiB or more, which protobuf cannot write.
    """
    try:
        return proto.SerializeToString(deterministic=True)
    except Exception as error:  # EncodeError or ValueError, as the version goes
        raise OutputError("the fused model exceeds protobuf's 2 GiB; move weights to external data") from error


def save(data: bytes, output: str | os.PathLike, *, folder: str = "", locations: Iterable[str] = (),
         overwrite_data: bool = False) -> None:
    """Write a model, and beside it the data files it refers to.

    Args:
        data: the serialized model.
        output: path to write.
        folder: where its external data lies.
        locations: its data files, relative to `folder`.
        overwrite_data: replace data files of other content beside the output.

    Raises:
        OutputError: something cannot be written. What was there before still is, and nothing new is.
    """
    output = os.fsdecode(output)
    beside = os.path.dirname(output) or "."
    locations = list(locations)
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as renames:
        # entered first, hence renamed last; from then on the data files belong to the new model
        renames.enter_context(_replacing(output, undo.pop_all)).write(data)
        if locations and not _same_folder(folder, beside):
            for location in locations:
                _copy_beside(os.path.join(folder, location), os.path.join(beside, location), beside, renames, undo,
                             overwrite_data)
        renames.close()


def check_output(output: str | os.PathLike, *, folder: str = "", locations: Iterable[str] = ()) -> None:
    """Refuse an output that cannot be written, before any work is done.

    Raises:
        OutputError: it is a directory or a device, its folder does not exist or is read-only, it is write-protected,
            or it is one of the model's own data files.
    """
    output = os.fsdecode(output)
    target = os.path.realpath(output)
    parent = os.path.dirname(target)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        raise OutputError(f"{output}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    if mode is not None and stat.S_ISDIR(mode):
        raise OutputError(f"{output}: a directory; name the file to write")
    if mode is not None and not stat.S_ISREG(mode):
        raise OutputError(f"{output}: not a regular file (--dry-run writes no model, --json - prints the report)")
    if not os.path.isdir(parent):
        raise OutputError(f"{output}: the folder {parent} does not exist")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{output}: the folder {parent} is not writable")
    if mode is not None and not os.access(target, os.W_OK):
        raise OutputError(f"{output}: write-protected")
    if any(os.path.realpath(os.path.join(folder, location)) == target for location in locations):
        raise OutputError(f"{output}: holds the external data of this very model")


def write_text(text: str, output: str | os.PathLike) -> None:
    """Write a text file in the same manner.

    Raises:
        OutputError: it cannot be written.
    """
    check_output(output)
    with _replacing(os.fsdecode(output)) as file:
        file.write(text.encode())


@contextlib.contextmanager
def _replacing(output: str, replaced: Callable[[], object] = lambda: None) -> Iterator[BinaryIO]:
    """A file that takes the place of `output` when the block ends well, and vanishes when it does not.

    `replaced` is called as soon as it has.
    """
    target = os.path.realpath(output)
    parent = os.path.dirname(target)
    temporary = os.path.join(parent, f".warpfuse-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            _take_permissions(target, temporary)
            os.fsync(file.fileno())
        os.replace(temporary, target)
        replaced()
        _sync_folder(parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OutputError(f"{output}: cannot be written: {error.strerror or error}") from error
        raise


def _take_permissions(existing: str, new: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(existing)
        with contextlib.suppress(OSError, AttributeError):  # only the superuser may give files away
            os.chown(new, status.st_uid, status.st_gid)
        os.chmod(new, stat.S_IMODE(status.st_mode))


def _sync_folder(folder: str) -> None:
    """Make a rename durable, where the system lets a folder be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _copy_beside(source: str, target: str, beside: str, renames: contextlib.ExitStack, undo: contextlib.ExitStack,
                 overwrite: bool) -> None:
    inside, real = os.path.realpath(beside), os.path.realpath(target)
    if os.path.commonpath([inside, real]) != inside:
        raise OutputError(f"{target}: leads out of the output's folder through a symbolic link")
    if os.path.lexists(target):
        if os.path.isfile(target) and filecmp.cmp(source, target, shallow=False):
            return
        if not overwrite or not os.path.isfile(target):
            raise OutputError(f"{target}: exists with other content; remove it, or allow it with --overwrite-data")
    else:
        _make_folders(os.path.dirname(target), undo)
        undo.callback(_unlink, target)
    _copy(source, renames.enter_context(_replacing(target)))


def _make_folders(folder: str, undo: contextlib.ExitStack) -> None:
    if not os.path.isdir(folder):
        _make_folders(os.path.dirname(folder), undo)
        try:
            os.mkdir(folder)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror}") from error
        undo.callback(_unlink, folder, os.rmdir)


def _copy(source: str, target: BinaryIO) -> None:
    try:
        with open(source, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            try:
                while left > 0 and (done := os.copy_file_range(file.fileno(), target.fileno(), left)):
                    left -= done
            except (AttributeError, OSError):  # another system, or a file system that cannot
                file.seek(0)
                target.seek(0)
                target.truncate()
                shutil.copyfileobj(file, target, 1 << 20)
    except FileNotFoundError:
        raise ExternalDataError(f"{source}: vanished while the model was being fused") from None


def _unlink(path: str, how=os.unlink) -> None:
    with contextlib.suppress(OSError):
        how(path)


def _same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
