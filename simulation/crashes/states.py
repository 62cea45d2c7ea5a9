"""The legal subsets of unsynced changes that a power cut may leave.

With few pending changes, all subsets.  Otherwise each prefix and suffix, each single change, all but each one, and
random subsets.  A change is a sector of a write, a new length, or a directory entry (`simulation/disk.py`);
`SimulatedDisk.image` makes the disk of a subset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

MAX_EXHAUSTIVE: Final = 5
RANDOM_SUBSETS: Final = 12


def subsets(count: int, rng: random.Random) -> Iterator[Callable[[int], bool]]:
    """Subsets of `count` pending changes; each is a predicate of the index."""
    if count <= MAX_EXHAUSTIVE:
        for mask in range(1 << count):
            yield lambda index, mask=mask: bool(mask >> index & 1)  # type: ignore[misc]
        return
    for size in range(count + 1):
        yield lambda index, size=size: index < size  # type: ignore[misc]
        yield lambda index, size=size: index >= size  # type: ignore[misc]
    for one in range(count):
        yield lambda index, one=one: index == one  # type: ignore[misc]
        yield lambda index, one=one: index != one  # type: ignore[misc]
    for _ in range(RANDOM_SUBSETS):
        mask = rng.getrandbits(count)
        yield lambda index, mask=mask: bool(mask >> index & 1)  # type: ignore[misc]


@dataclass(slots=True)
class States:
    """Counts of recovered states."""

    count: int = 0
    torn: int = 0
    ahead: int = 0
    twice: int = 0
    steps: Counter[str] = field(default_factory=Counter)

    def add(self, other: States) -> None:
        """Count another workload's too."""
        self.count += other.count
        self.torn += other.torn
        self.ahead += other.ahead
        self.twice += other.twice
        self.steps.update(other.steps)

    def __str__(self) -> str:
        return (
            f"{self.count} states, {self.torn} without some unacknowledged operations, {self.ahead} with some "
            f"unacknowledged operations, {self.twice} recovered twice"
        )
