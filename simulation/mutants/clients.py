"""Mutants of scaling, in the controller and in the Python client, and of its connections."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.client.core.controller import ControllerClient
from sarit.client.reader.progress import Progress
from sarit.client.session.session import Session
from sarit.controller.model import streams
from sarit.controller.model.effects import SealSegment
from sarit.controller.model.records import NO_WORK, WorkKind
from sarit.controller.streams import Streams
from sarit.core.errors import Unavailable
from sarit.core.names import SegmentId
from sarit.rpc.channel import CallLost
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("liveness")
@contextmanager
def lost_connection_not_mapped() -> Iterator[None]:
    """What a channel raises for a connection that is lost during a call comes out of the client."""
    right = ControllerClient.call

    async def wrong(self: Any, method: Any, request: Any, seconds: Any = None) -> Any:
        try:
            return await right(self, method, request, seconds)
        except Unavailable as error:
            if isinstance(error.__context__, CallLost):
                raise error.__context__ from None
            raise

    with patched(ControllerClient, ControllerClient.call, wrong):
        yield


@mutant("liveness")
@contextmanager
def call_not_retried() -> Iterator[None]:
    """A call that the node did not answer is not made again."""

    async def wrong(self: Any, call: Any, policy: Any = None, since: Any = None) -> Any:
        return await call()

    with patched(Session, Session.with_retry, wrong):
        yield


@mutant("scale safety")
@contextmanager
def successor_read_before_predecessors() -> Iterator[None]:
    """A reader starts a merged segment when only one of its predecessors is read."""
    right = Progress.followed

    def wrong(self: Any, segment: Any, successors: Any) -> Any:
        if not successors:
            return right(self, segment, successors)
        begun = [s.segment for s in successors if s.segment not in self.positions]
        staying = {known: offset for known, offset in self.positions.items() if known != segment}
        self.positions = staying | dict.fromkeys(begun, 0)
        return begun

    with patched(Progress, Progress.followed, wrong):
        yield


@mutant("scale safety")
@contextmanager
def sealed_before_published() -> Iterator[None]:
    """A scale seals the replaced segments before it publishes their successors."""
    right: Any = streams.step

    def wrong(name: Any, record: Any, epochs: Any) -> Any:
        found = right(name, record, epochs)
        if found is None or record.work.kind is not WorkKind.SCALE:
            return found
        seals = tuple(SealSegment(streams._segment(name, s)) for s in found.then.work.segments)
        return replace(found, stages=(seals, *found.stages))

    with patched(streams, streams.step, wrong):
        yield


@mutant("scale safety")
@contextmanager
def replaced_segment_not_sealed() -> Iterator[None]:
    """A scale does not seal the replaced segments."""
    right: Any = streams._publish

    def wrong(stages: Any, record: Any) -> Any:
        found = right(stages, record)
        return replace(found, then=replace(found.then, work=NO_WORK))

    with patched(streams, streams._publish, wrong):
        yield


@mutant("key space tiled")
@contextmanager
def segment_missing_after_scale() -> Iterator[None]:
    """After a scale, the last active segment is missing from the controller's reply."""
    right = Streams.active

    async def wrong(self: Any, name: Any) -> Any:
        found = await right(self, name)
        scaled = any(SegmentId.unpack(s.segment).epoch for s in found)
        return found[:-1] if scaled and len(found) > 1 else found

    with patched(Streams, Streams.active, wrong):
        yield
