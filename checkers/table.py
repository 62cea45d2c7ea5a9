"""Guarantees of a table of versioned entries, checked over a history.  Pure.

Every successful update of a key gets a version; versions order the updates of a key, so linearizability needs
no search: it is enough to compare each operation with the versions known before it began.

| kind | meaning |
|---|---|
| `version` | one version for two values of a key, or a version not above the expected one |
| `phantom` | a value that nobody wrote to that key, or whose update was refused |
| `lost-update` | a conditional update succeeded although another came between it and the expected version |
| `stale` | an operation saw an older version than one acknowledged or read before it began |
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

ABSENT: Final = -1
ANY: Final = -2


@dataclass(frozen=True, slots=True)
class Update:
    """A put of a value that no other put uses.  `version` None: the outcome is unknown."""

    key: bytes
    value: bytes
    expected: int
    version: int | None
    begun: float
    ended: float
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """What a key held.  Version ABSENT: nothing."""

    key: bytes
    value: bytes
    version: int
    begun: float
    ended: float


@dataclass(slots=True)
class TableHistory:
    """Filled by a workload; keys carry the name of their table."""

    updates: list[Update] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


def check(history: TableHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    updates: dict[bytes, list[Update]] = {}
    reads: dict[bytes, list[Read]] = {}
    for update in history.updates:
        updates.setdefault(update.key, []).append(update)
    for read in history.reads:
        reads.setdefault(read.key, []).append(read)
    out: list[Violation] = []
    for key in sorted({*updates, *reads}):
        out.extend(_check_key(key, updates.get(key, []), reads.get(key, [])))
    return out


def _check_key(key: bytes, updates: list[Update], reads: list[Read]) -> Iterator[Violation]:
    written = {update.value: update for update in updates}
    versions: dict[int, bytes] = {}
    for value, version in [(u.value, u.version) for u in updates if u.version is not None] + [
        (r.value, r.version) for r in reads if r.version != ABSENT
    ]:
        if versions.setdefault(version, value) != value:
            yield Violation("version", f"key {key!r}: version {version} has values {versions[version]!r} and {value!r}")
    for read in reads:
        if read.version == ABSENT:
            continue
        update = written.get(read.value)
        if update is None or update.refused or update.begun > read.ended:
            yield Violation("phantom", f"key {key!r} held {read.value!r}, which nobody wrote")
        elif update.version not in (None, read.version):
            yield Violation("version", f"key {key!r}: {read.value!r} is of versions {update.version}, {read.version}")
    yield from _lost_updates(key, versions, written)
    yield from _stale(key, updates, reads)


def _lost_updates(key: bytes, versions: dict[int, bytes], written: dict[bytes, Update]) -> Iterator[Violation]:
    known = sorted(versions)
    for at, version in enumerate(known):
        update = written.get(versions[version])
        if update is None or update.expected == ANY:
            continue
        before = known[at - 1] if at else ABSENT
        if update.expected >= version:
            yield Violation("version", f"key {key!r}: version {version} follows {update.expected}")
        elif before > update.expected:
            yield Violation(
                "lost-update",
                f"key {key!r}: version {version} was put on condition of {update.expected}, but {before} came between",
            )


def _stale(key: bytes, updates: list[Update], reads: list[Read]) -> Iterator[Violation]:
    """Nothing is deleted here, so a key's version never falls."""
    shown = sorted(
        [(update.ended, update.version) for update in updates if update.version is not None]
        + [(read.ended, read.version) for read in reads]
    )
    moments = [ended for ended, _ in shown]
    highest: list[int] = []
    for _, version in shown:
        highest.append(max(version, highest[-1] if highest else ABSENT))
    seen = [(update.begun, update.version) for update in updates if update.version is not None]
    for begun, version in seen + [(read.begun, read.version) for read in reads]:
        at = bisect_left(moments, begun)
        if at and highest[at - 1] > version:
            yield Violation("stale", f"key {key!r}: version {version} after {highest[at - 1]} was shown")
