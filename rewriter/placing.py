"""Where the data files of a model are to be, once it is written somewhere else: shared with the input, or copied.

onnx refuses a location that is absolute, leads out of the model's folder, or is a symbolic or hard link; ONNX Runtime
refuses most of these. So a file can be shared only by a model in a folder at or above it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator

import onnx
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from rewriter.errors import OutputError, UsageError

AUTO, SHARE, COPY = POLICIES = ("auto", "share", "copy")


@dataclasses.dataclass(frozen=True)
class Placement:
    """What is to become of the data files.

    Attributes:
        names: locations in the model that came in -> in the model that is written.
        copies: (source, target) of each file that must be copied for that.
        folder: of the written model.
    """

    names: dict[str, str]
    copies: list[tuple[str, str]]
    folder: str

    @property
    def files(self) -> list[str]:
        """The data files of the written model."""
        return sorted({os.path.join(self.folder, location) for location in self.names.values()})

    def relocate(self, data: bytes) -> bytes:
        """A serialized model with the new locations; the very same bytes where none is new."""
        if all(old == new for old, new in self.names.items()):
            return data
        proto = onnx.ModelProto.FromString(data)
        for tensor in _tensors(proto):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = self.names.get(entry.value, entry.value)
        try:
            moved: bytes = proto.SerializeToString(deterministic=True)
        except Exception as error:  # EncodeError or ValueError, as the version goes
            raise OutputError("the model exceeds protobuf's 2 GiB with the new names of its data files") from error
        return moved


def place(output: str, folder: str, locations: Iterable[str], policy: str = AUTO,
          model: str | os.PathLike[str] | None = None) -> Placement:
    """Decide.

    Args:
        output: path of the model to write.
        folder: where the data files lie.
        locations: the data files, as the model names them.
        policy: "auto" shares them with a model in the same folder and copies them for any other, "share" never
            copies, "copy" gives the model files of its own: under the same names in another folder, in the same one
            under names that begin with the output's.
        model: path of the model that came in; where that is written over, files that have such names are its own.

    Raises:
        OutputError: a file that is to be shared is not in the output's folder or below it.
    """
    beside, locations = os.path.dirname(output) or ".", list(locations)
    same_folder = os.path.realpath(folder) == os.path.realpath(beside)
    if policy == COPY and same_folder:
        names = _new_names(output, locations, model is not None and os.path.realpath(model) == os.path.realpath(output))
    elif policy == SHARE and not same_folder:
        names = {location: _from_above(os.path.join(folder, location), beside) for location in locations}
    else:
        names = {location: location for location in locations}
    copied = policy != SHARE and not (same_folder and policy == AUTO)
    pairs = {os.path.normpath(os.path.join(beside, new)): os.path.join(folder, old) for old, new in names.items()
             if copied and not (same_folder and old == new)}
    return Placement(names, [(source, target) for target, source in pairs.items()], beside)


def check(policy: str) -> None:
    """Raises UsageError if there is no such policy."""
    if policy not in POLICIES:
        raise UsageError(f"data: {policy!r} is none of {', '.join(POLICIES)}")


def _from_above(file: str, folder: str) -> str:
    file, folder = os.path.realpath(file), os.path.realpath(folder)
    if os.path.commonpath([file, folder]) != folder:
        raise OutputError(f"{file}: cannot be shared: it is not below {folder}, and onnx and ONNX Runtime refuse models"
                          " that refer to data outside of their folder; --data copy makes a copy")
    return os.path.relpath(file, folder).replace(os.sep, "/")


def _new_names(output: str, locations: list[str], own: bool) -> dict[str, str]:
    """A new name for every file in the same folder; files that `own` the output's name already keep theirs."""
    stem = os.path.splitext(os.path.basename(output))[0]
    taken = {os.path.normpath(location) for location in locations} | {os.path.basename(output)}
    made: dict[str, str] = {}
    for location in sorted(locations):
        file = os.path.normpath(location)
        folder, name = os.path.split(file)
        if own and name.startswith(f"{stem}."):
            made[file] = location
        number = 1
        while file not in made:
            new = os.path.join(folder, f"{stem}.{f'{number}.' if number > 1 else ''}{name}")
            if new not in taken:
                made[file] = new.replace(os.sep, "/")
                taken.add(new)
            number += 1
    return {location: made[os.path.normpath(location)] for location in locations}


def _tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Every tensor in a message, at any depth."""
    for field, value in message.ListFields():
        if field.message_type is None or not _may_hold_tensors(field.message_type):
            continue
        for item in (value,) if isinstance(value, Message) else value:
            if isinstance(item, onnx.TensorProto):
                yield item
            else:
                yield from _tensors(item)


@functools.cache
def _may_hold_tensors(kind: Descriptor) -> bool:
    seen, pending = set(), [kind]
    while pending:
        kind = pending.pop()
        if kind.full_name == onnx.TensorProto.DESCRIPTOR.full_name:
            return True
        if kind.full_name not in seen:
            seen.add(kind.full_name)
            pending += [field.message_type for field in kind.fields if field.message_type is not None]
    return False
