"""Writing a model so that a reader finds the old file or the new one, never a part.

Files are written as drafts (`rewriter.drafts`), synced and renamed.

`rewriter.placing` decides which data files are shared with the input and which are copied. Of these first every byte is
written and synced, then the data files are renamed, the model last. A data file that already exists there is left alone
if it has the same content, and refused otherwise unless `overwrite_data` is set: another model may depend on it. Where
one is overwritten, the old model goes before its data do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import onnx

from rewriter import copying, placing
from rewriter.drafts import Draft, draft, locked, naming, remove_abandoned, sync_folder
from rewriter.errors import ExternalDataError, OutputError


def serialize(proto: onnx.ModelProto) -> bytes:
    """The bytes of a model, the same on every run.

    Raises:
        OutputError: they would be 2 GiB or more, which protobuf cannot write.
    """
    try:
        data: bytes = proto.SerializeToString(deterministic=True)
    except Exception as error:  # EncodeError or ValueError, as the version goes
        raise OutputError("the fused model exceeds protobuf's 2 GiB; move weights to external data") from error
    return data


@dataclasses.dataclass(frozen=True)
class Saved:
    """What was written: the bytes of the model, and the data files it refers to, wherever they were before."""

    data: bytes
    files: list[str]


def save(data: bytes, output: str | os.PathLike[str], *, folder: str = "", locations: Iterable[str] = (),
         policy: str = placing.AUTO, model: str | os.PathLike[str] | None = None,
         overwrite_data: bool = False) -> Saved:
    """Write a model, and beside it the data files it refers to.

    Args:
        data: the serialized model.
        output: path to write.
        folder: where its external data lies.
        locations: its data files, relative to `folder`.
        policy, model: which of them are shared and which copied, see `rewriter.placing.place`.
        overwrite_data: replace data files of other content beside the output. A failure between the renames then
            leaves no model at `output`, rather than the old one beside data that are not its own.

    Raises:
        OutputError: something cannot be written. What was there before still is, and nothing new is.
    """
    output = os.fsdecode(output)
    placement = placing.place(output, folder, locations, policy, model)
    data = placement.relocate(data)
    with contextlib.ExitStack() as made, contextlib.ExitStack() as drafts:
        new = drafts.enter_context(draft(output))
        new.file.write(data)
        data_files = [_copy_beside(*pair, placement.folder, drafts, made, overwrite_data) for pair in placement.copies]
        written = [new, *(item.draft for item in data_files if item.draft is not None)]
        for file in written:
            file.finish()
        with locked(placement.folder) if data_files else contextlib.nullcontext():
            _publish(new, data_files)
    _clean({os.path.dirname(file.target) for file in written})
    return Saved(data, placement.files)


def check_output(output: str | os.PathLike[str], *, folder: str = "", locations: Iterable[str] = (),
                 policy: str = placing.AUTO) -> None:
    """Refuse an output that cannot be written, before any work is done.

    Raises:
        OutputError: it is a directory or a device, its folder does not exist or is read-only, it is write-protected,
            or it is one of the model's own data files; or these cannot be shared with it, as asked for.
    """
    output, locations = os.fsdecode(output), list(locations)
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
    placing.place(output, folder, locations, policy)


def write_text(text: str, output: str | os.PathLike[str]) -> None:
    """Write a text file in the same manner.

    Raises:
        OutputError: it cannot be written.
    """
    check_output(output)
    with draft(os.fsdecode(output)) as file:
        file.file.write(text.encode())
        file.finish()
        file.publish()
    _clean({os.path.dirname(file.target)})


def _clean(folders: Iterable[str]) -> None:
    for folder in folders:
        sync_folder(folder)
        remove_abandoned(folder)


class _Data:
    """A data file that the model refers to, on its way beside the output.

    Args:
        source, target: where it is, and where it is to be.
        draft: its copy; None if the file at `target` has the same content already.
        stamp: of what was at `target` when that was decided.
        may_overwrite: whether `draft` may replace a file of other content.

    Attributes:
        overwrites: whether it does.
    """

    def __init__(self, source: str, target: str, draft: Draft | None, stamp: tuple[int, ...] | None, *,
                 may_overwrite: bool = False):
        self.source, self.target, self.draft = source, target, draft
        self.overwrites = draft is not None and stamp is not None
        self._stamp, self._may_overwrite = stamp, may_overwrite

    def settle(self) -> None:
        """Look again, now that no other run renames: what has appeared since may stay if it is the same.

        Raises:
            OutputError: it is not.
        """
        if self.overwrites or _stamp(self.target) == self._stamp:
            return
        exists = os.path.isfile(self.target)
        if exists and _same_content(self.source, self.target):
            self.draft = None
        elif exists and self.draft is not None and self._may_overwrite:
            self.overwrites = True
        else:
            raise OutputError(f"{self.target}: was changed meanwhile by another run; run this one again")


def _publish(model: Draft, data: Sequence[_Data]) -> None:
    """Rename, the model last; all that takes time was done before.

    An old model must not stand beside data that are not its own, not even if this is killed between two renames.
    """
    try:
        for item in data:
            item.settle()
        if any(item.overwrites for item in data):
            with naming(model.output), contextlib.suppress(FileNotFoundError):
                os.unlink(model.target)
        for item in data:
            if item.draft is not None:
                item.draft.publish()
        model.publish()
    except BaseException:
        if not model.published:
            for item in data:
                if item.draft is not None and not item.overwrites and item.draft.published:
                    with contextlib.suppress(OSError):
                        os.unlink(item.draft.target)
        raise


def _copy_beside(source: str, target: str, beside: str, drafts: contextlib.ExitStack, made: contextlib.ExitStack,
                 overwrite: bool) -> _Data:
    inside, real = os.path.realpath(beside), os.path.realpath(target)
    if os.path.commonpath([inside, real]) != inside:
        raise OutputError(f"{target}: leads out of the output's folder through a symbolic link")
    stamp, exists = _stamp(target), os.path.lexists(target)
    if exists:
        if os.path.isfile(target) and _same_content(source, target):
            return _Data(source, target, None, stamp)
        if not overwrite or not os.path.isfile(target):
            raise OutputError(f"{target}: exists with other content; remove it, or allow it with --overwrite-data")
    else:
        _make_folders(os.path.dirname(target), made)
    copy = drafts.enter_context(draft(target))
    _copy(source, copy.file)
    return _Data(source, target, copy, stamp, may_overwrite=overwrite)


def _make_folders(folder: str, made: contextlib.ExitStack) -> None:
    if not os.path.isdir(folder):
        _make_folders(os.path.dirname(folder), made)
        try:
            os.mkdir(folder)
        except FileExistsError:  # another run was quicker; if it is no folder, the file in it says so
            return
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror}") from error
        made.callback(_remove_empty, folder)


def _copy(source: str, target: BinaryIO) -> None:
    try:
        copying.copy(source, target)
    except (FileNotFoundError, EOFError):
        raise ExternalDataError(f"{source}: vanished or was cut short while the model was being fused") from None


def _same_content(one: str, other: str) -> bool:
    with naming(other):
        return copying.same(one, other)


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _remove_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)
