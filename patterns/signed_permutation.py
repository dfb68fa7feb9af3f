"""Flips and transposes as one group: signed axis permutations.

Every flip, every Transpose and every chain of them takes axis perm[i] of its input to axis i of its output and
perhaps reverses it. Composing two is a few integer operations, so a chain of any length is one such element, and its
best spelling is read off that: for rank r there are 2^r r! of them, six of which in each plane turn or mirror it.

    x -> Slice(axis 3 reversed) -> Transpose(0, 1, 3, 2)     perm (0, 1, 3, 2), axis 2 reversed: one quarter turn
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np

Plane = tuple[int, int]  # two axes, ascending

COST_TRANSPOSE, COST_FLIP, COST_INNER_FLIP = 3, 1, 3  # measured, in passes over the data; inner: the last axis


@dataclasses.dataclass(frozen=True)
class SignedPermutation:
    """y = flip(transpose(x, perm), flips).

    Attributes:
        perm: axis i of y is axis perm[i] of x.
        flips: the axes of y that run backwards.
    """

    perm: tuple[int, ...]
    flips: frozenset[int] = frozenset()

    @classmethod
    def flip(cls, rank: int, axes: Iterable[int]) -> SignedPermutation:
        return cls(tuple(range(rank)), frozenset(axes))

    @property
    def rank(self) -> int:
        return len(self.perm)

    @functools.cached_property
    def moved(self) -> tuple[int, ...]:
        """The axes that do not stay where they are."""
        return tuple(i for i, axis in enumerate(self.perm) if i != axis)

    @property
    def is_identity(self) -> bool:
        return not self.moved and not self.flips

    def then(self, after: SignedPermutation) -> SignedPermutation:
        """This one first, `after` behind it."""
        return _product(self, after)

    def inverse(self) -> SignedPermutation:
        perm = tuple(int(i) for i in np.argsort(self.perm))
        return SignedPermutation(perm, frozenset(i for i, axis in enumerate(perm) if axis in self.flips))

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return np.flip(np.transpose(array, self.perm), sorted(self.flips))

    def rotation(self) -> tuple[int, Plane] | None:
        """(k, plane) with y = numpy.rot90(x, k, plane) and k in 1..3, if there is one."""
        if not self.moved and len(self.flips) == 2:
            return 2, tuple(sorted(self.flips))
        if len(self.moved) == 2 and len(self.flips) == 1 and self.flips < set(self.moved):
            # rot90 by 1 is a transpose, then a flip of the first axis; by 3, of the second
            return 1 if self.flips == {self.moved[0]} else 3, self.moved
        return None

    def rotation_and_layout(self) -> tuple[SignedPermutation, SignedPermutation] | None:
        """A rotation of spatial axes and the channels-first / channels-last transpose behind it, if it is both."""
        for layout, still in _layouts(self.rank):
            turn = self.then(layout.inverse())
            found = turn.rotation()
            if found and not still & set(found[1]):
                return turn, layout
        return None

    def rotation_and_flip(self) -> tuple[SignedPermutation, SignedPermutation] | None:
        """An anti-transpose of a plane as a rotation and a flip of its outer axis, if it is one."""
        if len(self.moved) != 2 or self.flips != set(self.moved):
            return None
        flip = SignedPermutation.flip(self.rank, self.moved[:1])
        return self.then(flip), flip

    def spelled(self) -> tuple[SignedPermutation, ...]:
        """Flips and at most one transpose that make it, each flip on the side where its axis lies further out."""
        before = {self.perm[i] for i in self.flips if self.perm[i] <= i}
        after = {i for i in self.flips if self.perm[i] > i}
        parts = (SignedPermutation.flip(self.rank, before), SignedPermutation(self.perm),
                 SignedPermutation.flip(self.rank, after))
        return tuple(part for part in parts if not part.is_identity)

    @property
    def cost(self) -> int:
        """Of one node that flips, one Transpose, or both behind each other."""
        flips = (COST_INNER_FLIP if self.rank - 1 in self.flips else COST_FLIP) if self.flips else 0
        return flips + (COST_TRANSPOSE if self.moved else 0)

    def __str__(self) -> str:
        words = []
        if self.moved:
            words.append(f"the axes permuted to {self.perm}")
        if self.flips:
            axes = sorted(self.flips)
            words.append(f"axis {axes[0]} reversed" if len(axes) == 1 else
                         f"axes {', '.join(map(str, axes[:-1]))} and {axes[-1]} reversed")
        return " with ".join(words) or "nothing moved"


@functools.lru_cache(maxsize=1 << 12)  # a model has few motions, and long chains of them
def _product(first: SignedPermutation, after: SignedPermutation) -> SignedPermutation:
    return SignedPermutation(
        tuple(first.perm[axis] for axis in after.perm),
        frozenset(i for i, axis in enumerate(after.perm) if (i in after.flips) != (axis in first.flips)))


def compose(parts: Sequence[SignedPermutation]) -> SignedPermutation:
    """The first of `parts` first. There is at least one."""
    total, *rest = parts
    for part in rest:
        total = total.then(part)
    return total


def holds_rotation(parts: Sequence[SignedPermutation]) -> bool:
    """Whether some of the parts, up to a dozen next to each other, make a rotation."""
    for i, total in enumerate(parts):
        for part in (None, *parts[i + 1:i + 12]):
            total = total if part is None else total.then(part)
            if total.rotation():
                return True
    return False


def _layouts(rank: int) -> list[tuple[SignedPermutation, set[int]]]:
    """Channels-first <-> channels-last, each with the axes of its input that are not spatial: CHW, NCHW, NCDHW."""
    if not 3 <= rank <= 5:
        return []
    batch = () if rank == 3 else (0,)
    channels = len(batch)
    spatial = tuple(range(channels + 1, rank))
    to_last = SignedPermutation((*batch, *spatial, channels))
    return [(to_last, {*batch, channels}), (to_last.inverse(), {*batch, rank - 1})]
