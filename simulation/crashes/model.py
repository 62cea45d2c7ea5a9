"""The expected content of a container after each operation."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sarit.core.limits import NULL_ATTRIBUTE_VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

# Name -> (start, length, sealed, bytes from start, attributes, entries, mirror): the readable content of a segment.
Seen = dict[str, tuple[int, int, bool, bytes, tuple[int, ...], tuple[bytes | None, ...], bool]]


@dataclass(slots=True)
class ModelSegment:
    """One segment.  `begin`: the offset of the first byte of `data`."""

    table: bool = False
    data: bytes = b""
    start: int = 0
    sealed: bool = False
    attributes: dict[bytes, int] = field(default_factory=dict)
    entries: dict[bytes, bytes] = field(default_factory=dict)
    begin: int = 0
    mirror: bool = False

    @property
    def length(self) -> int:
        """Where the segment ends."""
        return self.begin + len(self.data)


class Model:
    """All segments after each operation; `acked` operations are durable, `len(states) - 1` were submitted."""

    def __init__(self, attributes: list[bytes], keys: list[bytes]) -> None:
        self.attributes = attributes
        self.keys = keys
        self.segments: dict[str, ModelSegment] = {}
        self.states: list[Seen] = [{}]
        self.bases: list[dict[str, ModelSegment]] = [{}]
        self.names: list[str] = []
        self.acked = 0

    def __repr__(self) -> str:
        return f"<Model {self.acked} of {len(self.states) - 1} operations acknowledged>"

    def submit(self, change: Callable[[dict[str, ModelSegment]], Any]) -> int:
        """Record an operation before it is executed; its number."""
        segments = deepcopy(self.segments)
        change(segments)
        self.names.extend(name for name in segments if name not in self.names)
        self.segments = segments
        self.bases.append(segments)
        self.states.append({name: self._seen(segment) for name, segment in segments.items()})
        return len(self.states) - 1

    def ack(self, number: int) -> None:
        """An operation, and so all before it, is durable."""
        self.acked = max(self.acked, number)

    def matching(self, seen: Seen) -> int | None:
        """The number of operations that give exactly this content; None: no number does."""
        for number in range(len(self.states) - 1, self.acked - 1, -1):
            if self.states[number] == seen:
                return number
        return None

    def go_on_from(self, number: int) -> None:
        """A new process starts with the first `number` operations."""
        del self.states[number + 1 :], self.bases[number + 1 :]
        self.segments = self.bases[number]
        self.acked = number

    def difference(self, seen: Seen) -> str:
        """For people: how `seen` differs from the acknowledged content."""
        wanted = self.states[self.acked]
        return "; ".join(
            f"{name}: {_short(seen.get(name))}, acknowledged was {_short(wanted.get(name))}"
            for name in sorted({*wanted, *seen})
            if wanted.get(name) != seen.get(name)
        )

    def _seen(self, segment: ModelSegment) -> Any:
        attributes = tuple(segment.attributes.get(key, NULL_ATTRIBUTE_VALUE) for key in self.attributes)
        if segment.table:
            entries = tuple(segment.entries.get(key) for key in self.keys)
            return (segment.begin, 0, segment.sealed, b"", (), entries, segment.mirror)
        data = segment.data[segment.start - segment.begin :]
        return (segment.start, segment.length, segment.sealed, data, attributes, (), segment.mirror)


def _short(found: Any) -> str:
    if found is None:
        return "absent"
    start, length, sealed, data, attributes, entries, mirror = found
    flags = f"{'sealed ' if sealed else ''}{'mirror ' if mirror else ''}"
    return f"[{start}, {length}) {flags}{len(data)} bytes {attributes} {entries}"
