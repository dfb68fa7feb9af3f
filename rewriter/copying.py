"""Copying and comparing large files by the parts of them that are on the disk: holes cost neither time nor disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import BinaryIO

CHUNK = 1 << 20  # bytes in memory at a time, where the file system does not copy by itself


def copy(source: str, target: BinaryIO) -> None:
    """Copy a file into a new, empty one: by reference or within the file system, where it can.

    Raises:
        FileNotFoundError: there is no source.
        EOFError: it was cut short meanwhile.
        OSError: the disk is full, or another failure of it.
    """
    with open(source, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for start, end in _parts(file.fileno(), size):
            _copy_part(file, target, start, end)
        target.truncate(size)


def same(one: str, other: str) -> bool:
    """Whether two files have the same bytes. What is a hole in both is not read.

    Raises:
        OSError: one of them cannot be read.
    """
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        sizes = [os.fstat(file.fileno()).st_size for file in (first, second)]
        if sizes[0] != sizes[1]:
            return False
        return all(_same_part(first, second, start, end) for file in (first, second)
                   for start, end in _parts(file.fileno(), sizes[0]))


def _parts(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Where data begin and end in a file; all of it where the system does not tell."""
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
        except (AttributeError, OSError) as error:
            if getattr(error, "errno", None) != errno.ENXIO:  # that means: nothing but a hole is left
                yield end, size
            return
        yield start, end


def _copy_part(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    try:
        while start < end:
            done = os.copy_file_range(source.fileno(), target.fileno(), end - start, start, start)
            if not done:
                raise EOFError("cut short while it was copied")
            start += done
    except (AttributeError, OSError):  # another system, or a file system that cannot; a full disk says so again below
        source.seek(start)
        target.seek(start)
        while start < end:
            piece = source.read(min(CHUNK, end - start))
            if not piece:
                raise EOFError("cut short while it was copied") from None
            target.write(piece)
            start += len(piece)
        target.flush()


def _same_part(one: BinaryIO, other: BinaryIO, start: int, end: int) -> bool:
    one.seek(start)
    other.seek(start)
    while start < end:
        pieces = [_exactly(file, min(CHUNK, end - start)) for file in (one, other)]
        if pieces[0] != pieces[1] or not pieces[0]:
            return pieces[0] == pieces[1]
        start += len(pieces[0])
    return True


def _exactly(file: BinaryIO, size: int) -> bytes:
    """A raw file may give less than it is asked for."""
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data
