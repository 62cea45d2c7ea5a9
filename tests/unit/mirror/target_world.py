"""A target over the controller's fakes, a source's stream as values, and what a copier does with the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.controller.model.epochs import Epoch, first_epoch, next_epoch
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import StreamConfig
from sarit.mirror.target import LocalTarget
from sarit.mirror.values import LinkIdentity, MirrorState, MirrorStatus, Round, StreamFacts, Write
from tests.unit.controller.world import STREAM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.assembly import Controller
    from sarit.core.keyspace import KeyRange

LINK = LinkIdentity(b"l" * 16, "up", "edge")
OTHER = LinkIdentity(b"o" * 16, "other", "edge")
ID = bytes(range(16))


def target_of(controller: Controller, segments: Any, env: Any, **more: Any) -> LocalTarget:
    """The target of a controller's installation, which is `core`."""
    return LocalTarget(
        controller.catalog, controller.streams, controller.scopes, segments, env, "core", **more
    )  # fmt: skip


class Edge:
    """A stream of the source: its epochs and bytes, all known."""

    def __init__(self, segments: int = 1, name: StreamName = STREAM, first_number: int = 0) -> None:
        self.name = name
        self.first_number = first_number
        self.epochs: list[Epoch] = [first_epoch(segments, first_number, 5)]
        self.data: dict[int, bytes] = {s.segment: b"" for s in self.epochs[0].segments}
        self.version = 1

    def scale(self, replaced: Sequence[int], ranges: Sequence[KeyRange]) -> list[int]:
        """Replace segments, and return the ids of the new ones."""
        self.epochs.append(next_epoch(self.epochs[-1], list(replaced), ranges, 6))
        new = [s.segment for s in self.epochs[-1].segments if s.segment not in self.data]
        self.data |= dict.fromkeys(new, b"")
        return sorted(new)

    def facts(self, **more: Any) -> StreamFacts:
        values: dict[str, Any] = {
            "name": self.name, "creation_id": ID, "first_number": self.first_number, "created_ms": 5,
            "version": self.version, "config": StreamConfig(), "properties": {}, "sealed": False, "fenced": False,
            "head": {s.segment: 0 for s in self.epochs[0].segments}, "first": self.epochs[0], "path": ("edge",),
        }  # fmt: skip
        return StreamFacts(**(values | more))

    def round(self, before: Mapping[int, int], epochs: Sequence[Epoch] = (), **more: Any) -> Round:
        """The round from the lengths `before` to all that the edge has, over these epochs."""
        ids = set(before) | {s.segment for epoch in epochs for s in epoch.segments}
        last = epochs[-1].ids if epochs else set(before)
        after = {s: len(self.data[s]) for s in sorted(ids)}
        return Round(self.name, dict(before), after, frozenset(ids - last), tuple(epochs), **more)

    def writes(self, one: Round, *, staged: bool = True, size: int = 1 << 20) -> list[Write]:
        """The writes of a round, in pieces of at most `size` bytes."""
        return [
            Write(self.name, segment, at, self.data[segment][at : min(end, at + size)], staged)
            for segment, end in one.after.items()
            for at in range(one.before.get(segment, 0), end, size)
        ]


async def ready(target: LocalTarget, facts: StreamFacts, link: LinkIdentity = LINK) -> MirrorState:
    """Begin one mirror, which is ready then."""
    (state,) = await target.begin(link, facts.name.scope, [facts])
    assert state.status is MirrorStatus.READY, state.reason
    return state


async def copy(target: LocalTarget, edge: Edge, one: Round, size: int = 1 << 20) -> MirrorState:
    """Stage a round and finish it."""
    found = await target.write(LINK, edge.name.scope, edge.writes(one, size=size))
    assert not [written for written in found if written.refused or written.reason]
    (state,) = await target.finish(LINK, edge.name.scope, [one])
    return state


def named(name: StreamName, segment: int) -> str:
    return name.segment(SegmentId.unpack(segment))
