"""Files written under a temporary name beside the one whose place they take: a reader finds either, never a part.

A symbolic link at the target is followed and stays; an existing file's permissions are kept, its owner where the system
allows. A run that is killed outright may leave `.warpfuse-<16 hex digits>.tmp` behind: nothing reads it, and the next
run that writes into the folder removes it once it is a day old.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from typing import BinaryIO

from rewriter.errors import OutputError

ABANDONED = 24 * 3600.0  # seconds after which a temporary file is no living run's
PATIENCE = 10.0  # seconds to wait for another run; it holds the lock for as long as some renames take
_TEMPORARY = re.compile(r"\.warpfuse-[0-9a-f]{16}\.tmp")
_unfinished: dict[str, int] = {}  # temporary files, by the process that writes them


class Draft:
    """A file on its way.

    Args:
        output: path whose place it will take, as messages name it.
        temporary: where it is until then.
        file: open for writing there.

    Attributes:
        output, temporary, file: the same.
        target: `output`, with symbolic links followed.
    """

    def __init__(self, output: str, temporary: str, file: BinaryIO):
        self.output, self.temporary, self.file = output, temporary, file
        self.target = os.path.realpath(output)
        self._identity: tuple[int, int] | None = None

    def finish(self) -> None:
        """Everything that takes time: the bytes onto the disk, with the permissions that they are to have.

        Raises:
            OutputError: the disk is full, or another failure of it.
        """
        with naming(self.output):
            self.file.flush()
            _take_permissions(self.target, self.temporary)
            os.fsync(self.file.fileno())
            status = os.fstat(self.file.fileno())
            self.file.close()
        self._identity = status.st_dev, status.st_ino

    def publish(self) -> None:
        """Take the place of the output, in one step.

        Raises:
            OutputError: the system refuses.
        """
        with naming(self.output):
            os.replace(self.temporary, self.target)

    @property
    def published(self) -> bool:
        """Whether the output is this file; the disk is asked, since an interruption may come at any time."""
        try:
            status = os.stat(self.target)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity


@contextlib.contextmanager
def draft(output: str) -> Iterator[Draft]:
    """A draft of `output`, which vanishes at the end of the block unless it was published.

    Raises:
        OutputError: it cannot be made.
    """
    target = os.path.realpath(output)
    temporary = os.path.join(os.path.dirname(target), f".warpfuse-{secrets.token_hex(8)}.tmp")
    mode = _mode(target)
    _unfinished[temporary] = os.getpid()
    try:
        with (naming(output),
              open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file):
            yield Draft(output, temporary, file)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        _unfinished.pop(temporary)


@atexit.register
def remove_unfinished() -> None:
    """Remove the temporary files of this process: a signal may fall between a draft and its own removal."""
    for temporary, process in list(_unfinished.items()):
        if process == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def naming(output: str) -> Iterator[None]:
    """Turn what the system says of `output` into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{output}: cannot be written: {error.strerror or error}") from error


def sync_folder(folder: str) -> None:
    """Make renames durable, where the system lets a folder be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_abandoned(folder: str) -> None:
    """Remove the temporary files of runs that were killed long ago."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (_TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                    and time.time() - entry.stat().st_mtime > ABANDONED):
                os.unlink(entry.path)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keep other runs from renaming several files into `folder` meanwhile, where the system has such locks.

    The lock ends with the process. Someone else's on the same folder (`flock folder command`) is not waited for long.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(0.01)
                    continue
            except OSError:  # a file system without locks
                pass
            break
        yield
    finally:
        os.close(descriptor)


def _mode(target: str) -> int:
    """What to create the temporary file with: nobody may read it who may not read the file that it replaces."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode) & 0o666
    except OSError:
        return 0o666


def _take_permissions(existing: str, new: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(existing)
        for owner in (status.st_uid, -1):  # only the superuser may give files away; a group of one's own everybody may
            with contextlib.suppress(OSError, AttributeError):
                os.chown(new, owner, status.st_gid)
                break
        os.chmod(new, stat.S_IMODE(status.st_mode))
