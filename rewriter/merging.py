"""A three-way merge of protobuf messages: what one change made of a copy is done to the original.

`original` is what came in; `echo` what onnx_ir makes of it when nothing is rewritten; `new` what it makes of it after
the rewriting. Between echo and new there is only the rewriting, and only that is done to the original: whatever onnx_ir
drops, adds or puts in another order stays as it was, fields that this version of ONNX does not know included.

Items of lists are the same where their keys are: names, for nodes what they make. Equal keys are told apart by their
order.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Hashable, Sequence

from google.protobuf.message import Message

_KEYS: dict[str, Callable[[Message], Hashable]] = {
    "NodeProto": lambda node: (node.op_type, node.domain, tuple(node.output)),
    "FunctionProto": lambda function: (function.domain, function.name, function.overload),
    "OperatorSetIdProto": lambda entry: entry.domain,
    "StringStringEntryProto": lambda entry: entry.key,
    "TensorAnnotation": lambda annotation: annotation.tensor_name,
    "Dimension": lambda dimension: None,  # by its place
}


def merge(original: Message, echo: Message, new: Message) -> None:
    """Change `original` as `new` differs from `echo`; all are of one type, and only `original` is written to."""
    if _same(echo, new):
        return
    if original.DESCRIPTOR.name == "TensorProto":  # its data may be in any of its fields
        original.CopyFrom(new)
        return
    for field in original.DESCRIPTOR.fields:
        name = field.name
        ours, before, after = (getattr(message, name) for message in (original, echo, new))
        if hasattr(ours, "extend"):
            if field.message_type is not None:
                _merge_lists(ours, before, after)
            elif list(before) != list(after):
                del ours[:]
                ours.extend(after)
        elif not new.HasField(name):
            if echo.HasField(name):
                original.ClearField(name)
        elif field.message_type is not None:
            merge(ours, before, after)
            if not original.HasField(name):  # an empty message
                ours.CopyFrom(after)
        elif not echo.HasField(name) or before != after:
            setattr(original, name, after)


def _same(one: Message, other: Message) -> bool:
    return one == other or one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def _merge_lists(ours, before, after) -> None:
    if len(before) == len(after) and all(map(_same, before, after)):
        return
    old, wanted = _keys(before), _keys(after)
    # onnx_ir keeps nodes and their order; what it is shown in place of one may have another key
    own = old if before and before[0].DESCRIPTOR.name == "NodeProto" and len(ours) == len(before) else _keys(ours)
    was, now, mine = dict(zip(old, before)), dict(zip(wanted, after)), set(own)
    own = [_last_of(key, was) for key in own]
    for key, item in zip(own, ours):
        if key in now:
            merge(item, was.get(key, type(item)()), now[key])
    kept = [key for key in own if key in now or key not in was]
    added = [key for key in wanted if key not in mine and not (key in was and _same(was[key], now[key]))]
    _rearrange(ours, own, _ordered(kept, old, wanted, added), {key: now[key] for key in added})


def _last_of(key: tuple[Hashable, int], known: Collection) -> tuple[Hashable, int]:
    """The key itself, or where onnx_ir took one of several equal items and dropped the others, that of the one."""
    name, count = key
    while count and (name, count) not in known:
        count -= 1
    return (name, count) if (name, count) in known else key


def _ordered(kept: list, old: list, wanted: list, added: Sequence) -> list:
    """The keys of a merged list: those kept in their own order unless the rewriting chose another, and each one added
    behind the one that it follows in `wanted`."""
    present = set(kept)
    survivors = set(old) & set(wanted)
    chosen = [key for key in wanted if key in survivors]
    if chosen != [key for key in old if key in survivors]:
        kept = [*(key for key in chosen if key in present), *(key for key in kept if key not in survivors)]
    behind: dict[Hashable, list] = collections.defaultdict(list)
    new, last = set(added), None
    for key in wanted:
        if key in new:
            behind[last].append(key)
        elif key in present:
            last = key
    result = list(behind[None])
    for key in kept:
        result += (key, *behind.pop(key, ()))
    return result


def _rearrange(items, keys: list, order: list, added: dict) -> None:
    """Give a list, whose items have `keys`, those of `order`, of which some are added."""
    stay = set(order)
    for index in reversed(range(len(items))):
        if keys[index] not in stay:
            del items[index]
    left = [key for key in keys if key in stay]
    if left != [key for key in order if key not in added]:
        copies = collections.defaultdict(collections.deque)
        for key, item in zip(left, items):
            copies[key].append(type(item).FromString(item.SerializeToString()))
        del items[:]
        items.extend(added[key] if key in added else copies[key].popleft() for key in order)
        return
    for index, key in enumerate(order):
        if key in added:
            items.insert(index, added[key])


def _keys(items: Sequence[Message]) -> list[tuple[Hashable, int]]:
    """The keys of a list's items, each with how often it occurred before."""
    seen: collections.Counter = collections.Counter()
    keys = []
    for item in items:
        make = _KEYS.get(item.DESCRIPTOR.name)
        key = make(item) if make is not None else getattr(item, "name", None)
        keys.append((key, seen[key]))
        seen[key] += 1
    return keys
