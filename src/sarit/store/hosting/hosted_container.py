"""One container number of a store: carries out the transitions of its state machine (`states.py`).

Commands and faults change the state in the turn of the loop in which they come.  Opening, flushing and closing take
time: they are the *work* of a state.  One task per number does it, one step after the other, until a state without work
is reached.  A command that makes a step pointless interrupts it, except a close.  So a number is never opened twice at
once, whatever commands come in whatever order.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Fenced, Invalid, SaritError, Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.store.container.departure import Departure
from sarit.store.container.reads import Reads
from sarit.store.container.tables import Tables
from sarit.store.hosting.container_opening import open_container
from sarit.store.hosting.health import ContainerHealth, HealthState, Opening
from sarit.store.hosting.phases import Phases
from sarit.store.hosting.states import UNDECIDED, WORK, Effect, Event, Hosting, State, Work
from sarit.store.limits import (
    MAX_REOPEN_SECONDS,
    ORPHAN_SWEEP_RETRY_SECONDS,
    RELEASE_DIRTY_BYTES,
    RELEASE_FLUSH_SECONDS,
    RELEASE_REPORT_SECONDS,
    REOPEN_SECONDS,
)
from sarit.store.tiering.scrub import Scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.storage.port import ChunkStorage
    from sarit.store.container.container import Container, ContainerLimits, Leaving
    from sarit.store.container.reads import ChunkReader
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.flow_control.write_limiter import RateLimiters
    from sarit.store.hosting.container_opening import Opened
    from sarit.store.hosting.open_slots import OpenSlots
    from sarit.store.statistics import StoreStatistics
    from sarit.store.tiering.checkpoint import FlushLimits
    from sarit.store.tiering.scrub import ScrubRateLimiter

_log = logging.getLogger("sarit.store")


class Placement(Protocol):
    """The owners of containers, as this store knows them; a standalone node has none, since it owns all containers."""

    def is_mine(self, number: int) -> bool:
        """Return whether the newest map that this store knows gives it a container."""

    def valid(self) -> bool:
        """Return whether the store's lease runs, so that nobody else can own its containers."""

    def fenced(self, number: int, map_version: int) -> None:
        """Report that another store has opened a container; `map_version`: the newest map that gave it to this one."""

    def released(self, number: int) -> asyncio.Event | None:
        """Report that a container is completely closed here, whatever the reason.

        Returns an event that is set when the controllers name the next owner to clients; None: they do already."""

    def opening_changed(self) -> None:
        """Record that the set of containers that this store is opening may have changed."""


@dataclass(slots=True)
class SharedParts:
    """The parts that all containers of a store share."""

    env: Env
    logs: LogProvider
    indexes: IndexProvider
    storage: ChunkStorage
    budget: MemoryBudget
    rate_limiters: RateLimiters
    chunks: ChunkReader
    scrub_rate: ScrubRateLimiter
    container_limits: ContainerLimits
    flush_limits: FlushLimits
    late_writes_seconds: float
    scrub_interval_seconds: float
    statistics: StoreStatistics


class Store(Protocol):
    """The store of a hosted container."""

    parts: SharedParts
    stopping: bool
    placement: Placement | None
    # Whether containers are placed on stores by a map; a standalone node owns all of them for ever.
    placed: bool
    open_slots: OpenSlots
    opened_first: frozenset[int]

    def report_failure(self, container: Container) -> None:
        """Call every watcher of failures with a container that has failed, once requests do not find it any more."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task that ends with the store."""


class _Taken(Fenced):
    """The failure of a container that was dropped at once (`Event.DROP`)."""


class HostedContainer:
    """One container number, and the container that serves it now, if any."""

    __slots__ = (
        "_away", "_closing", "_decided", "_departed", "_doing", "_failure", "_running", "_step", "_store",
        "health", "hosting", "number", "opened", "reads", "scrub", "tables", "tasks",
    )  # fmt: skip

    def __init__(self, number: int, store: Store, *, owned: bool) -> None:
        self.number = number
        self.health = ContainerHealth(number)
        self.hosting = Hosting(State.OPENING if owned else State.ABSENT)
        self.opened: Opened | None = None  # set while requests find the container
        self.reads: Reads | None = None
        self.scrub: Scrub | None = None
        self.tables: Tables | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self._store = store
        self._closing: Opened | None = None  # set while the container is open and requests do not find it
        self._departed: Leaving | None = None  # set after the close until waiting appends are refused
        self._away: asyncio.Event | None = None  # set when the controllers name the next owner (`Placement.released`)
        self._failure = ""  # why the container does not serve
        self._decided = asyncio.Event()
        self._running = owned  # whether a task does the work of the state; at first `SegmentStore.start` does
        self._doing: Work | None = None
        self._step: asyncio.Task[Event] | None = None
        if not owned:
            self.health.leave(HealthState.ABSENT, "")

    def __repr__(self) -> str:
        return f"<HostedContainer {self.number} {self.hosting.state.value}>"

    def error(self) -> SaritError:
        """Return the error of a request while the container does not serve."""
        error = self.health.error()
        if self._store.placed and (self.hosting.state in UNDECIDED or self._away is not None):
            return Opening(str(error), self._decided)
        return error

    # -- commands and faults ------------------------------------------------------------------

    def own(self, map_version: int) -> None:
        self._follow(self.hosting.own(map_version))

    def on(self, event: Event) -> None:
        """Change the state by an event, and carry out the effects."""
        self._follow(self.hosting.on(event))

    def started(self, event: Event) -> None:
        """Record that the store's start has opened the container, or found it damaged, as `event` says."""
        self._running = False
        self.on(event)

    def failed(self, container: Container, error: BaseException) -> None:
        """Handle the failure of the container; do nothing if requests do not find it any more."""
        if self.opened is None or self.opened.container is not container:
            return
        _log.error("container %d failed and recovers: %s", self.number, error)
        coverage_probe("container_failed")
        self._failure = str(error)
        # Recover a standalone node's container even after Fenced, since no map would give it the container again.
        self.on(Event.FENCED if self._store.placed and isinstance(error, Fenced) else Event.FAILED)

    def _follow(self, effects: Sequence[Effect]) -> None:
        state = self.hosting.state
        withdrawn: Container | None = None
        if Effect.SERVE in effects:
            self._serve()
        elif Effect.WITHDRAW in effects:
            withdrawn = self._withdraw()
        elif Effect.HAND_OVER in effects:
            container = self._withdraw()
            assert container is not None, self
            container.departure = Departure(container)
        elif Effect.END in effects:
            withdrawn = self._end()
        self._update_health(state)
        if state in UNDECIDED or self._away is not None:
            self._decided.clear()
        else:
            self._decided.set()
        self._set_to_work()
        placement = self._store.placement
        if placement is not None:
            placement.opening_changed()
        # Report after all else is done, so that a report that raises does not stop the container.
        if Effect.REPORT_FENCED in effects:
            _log.warning("container %d was opened by another store", self.number)
            coverage_probe("container_fenced_by_another_store")
            if placement is not None:
                placement.fenced(self.number, self.hosting.fenced_version)
        if Effect.REPORT_RELEASED in effects and placement is not None:
            away = placement.released(self.number)
            if away is not None and self._departed is not None:
                self._away = away
                self._decided.clear()
        if withdrawn is not None:
            self._store.report_failure(withdrawn)
        if Effect.SERVE in effects and self.opened is not None:
            container = self.opened.container
            if container.failure is not None:  # a failure came between the opening and this turn of the loop
                self.failed(container, container.failure)

    def _serve(self) -> None:
        opened, parts = self._closing, self._store.parts
        assert opened is not None, self
        # No await until all parts are set: a request must find all parts of the container or none.
        self._closing, self.opened, self._failure = None, opened, ""
        self.reads = Reads(opened.container, parts.chunks)
        self.tables = Tables(opened.container)
        self.scrub = Scrub(opened.container, parts.scrub_rate, parts.scrub_interval_seconds)
        work = (opened.flusher.run(), self._sweep(opened), self.scrub.run())
        self.tasks = [asyncio.ensure_future(task) for task in work]

    def _withdraw(self) -> Container | None:
        """Hide the container from requests.  Returns the container, None if requests did not find it before."""
        if self.opened is None:
            return None
        assert self._closing is None, self
        self._closing, self.opened = self.opened, None
        self.reads = self.tables = None
        container = self._closing.container
        if container.failure is not None:
            self._forget_memory(container)
        return container

    def _forget_memory(self, container: Container) -> None:
        """Remove the charge and the cached bytes of a container that ended from the memory budget."""
        budget = self._store.parts.budget
        budget.forget_cached({id(segment) for segment in container.state.segments.values()})
        budget.forget(self.number)

    def _end(self) -> Container | None:
        container = self._withdraw()
        if container is None and self._closing is not None:
            container = self._closing.container
        if container is not None and container.failure is None:
            container.fail(_Taken(f"container {self.number} was taken from this store"))
            self._forget_memory(container)
        return container

    def _update_health(self, state: State) -> None:
        health = self.health
        if state in (State.SERVING, State.FLUSHING):
            if health.state is not HealthState.SERVING:
                health.serve()
        elif state is State.ABSENT:
            health.leave(HealthState.ABSENT, "")
        elif state is State.DRAINING:
            health.leave(HealthState.DRAINING, "it moves to another store")
        elif state is not State.FAILED and health.state is not HealthState.OPENING:
            health.recover(self._failure or "it is to be opened")

    # -- work ---------------------------------------------------------------------------------

    def _set_to_work(self) -> None:
        """Cancel a step that the state does not need any more, and start the task for the one that it needs."""
        wanted = WORK.get(self.hosting.state)
        if self._step is not None and self._doing not in (wanted, Work.CLOSE):
            self._step.cancel()
        if wanted is not None and not self._running and not self._store.stopping:
            self._running = True
            self._store.spawn(self._run())

    async def _run(self) -> None:
        """Do the work of each state until one has none."""
        steps: dict[Work, Callable[[], Coroutine[Any, Any, Event]]] = {
            Work.OPEN: self._open, Work.FLUSH: self._flush, Work.CLOSE: self._close,
        }  # fmt: skip
        try:
            while (work := WORK.get(self.hosting.state)) is not None and not self._store.stopping:
                self._doing, self._step = work, asyncio.ensure_future(steps[work]())
                try:
                    await asyncio.wait((self._step,))
                except asyncio.CancelledError:  # the store stops
                    self._step.cancel()
                    await asyncio.wait((self._step,))
                    raise
                step, self._step = self._step, None
                if not step.cancelled():
                    self.on(step.result())
                    # Refuse the waiting appends after the report, because their clients ask where the container is.
                    departed, self._departed = self._departed, None
                    if departed is not None and self._away is not None:
                        self._store.spawn(self._send_away(departed, self._away))
                    elif departed is not None:
                        departed.send_away()
        finally:
            self._step = None
            self._running = False

    async def _send_away(self, departed: Leaving, away: asyncio.Event) -> None:
        """Refuse the waiting appends once the controllers name the next owner, or after RELEASE_REPORT_SECONDS.

        Pravega's clients retry after 1, 10, 100 ms, then 1, 10, 20 s: a few wrong answers would cost half a minute."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_REPORT_SECONDS):
                await away.wait()
        if self._away is away:
            self._away = None
            if self.hosting.state not in UNDECIDED:
                self._decided.set()
        departed.send_away()

    async def open_once(self, *, accept_loss: bool = False, phases: Phases | None = None) -> None:
        """Open the container once, without a change of state, which the caller makes.  Raises as `open_container`."""
        parts, statistics, placement = self._store.parts, self._store.parts.statistics, self._store.placement
        began = parts.env.clock.monotonic()
        assert self._closing is None, self
        self.health.phases = phases = phases or Phases(parts.env.clock)
        self._closing = await open_container(
            self.number, parts.env, parts.logs, parts.indexes, parts.storage, parts.budget, parts.rate_limiters,
            parts.container_limits, parts.flush_limits, self.failed, accept_loss=accept_loss, claimed=self._give_up,
            phases=phases, statistics=statistics, lease=None if placement is None else placement.valid,
        )  # fmt: skip
        statistics.recovery_seconds.observe(parts.env.clock.monotonic() - began)

    def _give_up(self) -> None:
        """Check that the newest map still gives the container to this store.  Raises Unavailable."""
        placement = self._store.placement
        if placement is not None and not placement.is_mine(self.number):
            raise Unavailable("the newest map gives it to another store")

    async def _open(self) -> Event:
        store, health, delay = self._store, self.health, REOPEN_SECONDS
        repeated = RepeatedLog(_log, store.parts.env.clock.monotonic)
        suspected = False
        while True:
            try:
                await self._open_in_slot()
                return Event.OPENED
            except (SaritError, OSError) as error:
                damaged = isinstance(error, (Corrupt, Invalid))
                # Fail for good at the second attempt.  After the first, this process may have been suspended while
                # another owner deleted what is missing: the next attempt checks the map again.
                if damaged and (suspected or not store.placed):
                    health.fail(str(error))
                    _log.critical("container %d cannot recover: stored bytes are damaged", self.number, exc_info=True)
                    return Event.DAMAGED  # the other containers serve on
                if store.placed and isinstance(error, Fenced):
                    return Event.FENCED
                if damaged:
                    coverage_probe("damage_suspected_while_opening")
                suspected = damaged
                health.recover(str(error))
                repeated.warning("", f"container {self.number} cannot recover yet: {error}")
            except Exception as error:  # log it now: this task is not awaited
                health.recover(f"internal error: {error}")
                repeated.critical("", f"container {self.number} cannot recover: internal error")
            store.parts.statistics.recovery_failures += 1
            if store.placement is not None:
                store.placement.opening_changed()
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_REOPEN_SECONDS)

    async def _open_in_slot(self) -> None:
        if not self._store.placed:  # a standalone node has few containers, and opens all of them at once
            await self.open_once()
            return
        # Check the map before the wait for a slot, and again before `open_once` fences the former owner.
        self._give_up()
        slots, phases = self._store.open_slots, Phases(self._store.parts.env.clock)
        with phases.phase("wait for others"):
            await slots.acquire(preferred=self.number in self._store.opened_first)
        try:
            self._give_up()
            await self.open_once(phases=phases)
        finally:
            slots.release()

    async def _flush(self) -> Event:
        assert self.opened is not None, self
        phases, dirty = Phases(self._store.parts.env.clock), self.opened.container.state.dirty
        before = dirty.append_bytes
        try:
            with phases.phase("flush"):
                async with asyncio.timeout(RELEASE_FLUSH_SECONDS):
                    await self.opened.flusher.flush_below(RELEASE_DIRTY_BYTES)
        except TimeoutError:
            _log.warning("container %d is not flushed before it moves: its next owner replays more", self.number)
        _log.info("container %d: leaves after %s: %d bytes to replay, %d before", self.number, phases,
                  dirty.append_bytes, before)  # fmt: skip
        return Event.FLUSHED

    async def _close(self) -> Event:
        """Close log and index; if the container is handed over, wait first until operations in flight are durable."""
        phases = Phases(self._store.parts.env.clock)
        # End the flusher and the sweeps of this epoch before the next epoch begins.
        with phases.phase("end background work"):
            await cancel(self.tasks)
        self.tasks = []
        if self._closing is None:
            return Event.CLOSED
        container = self._closing.container
        if container.failure is None:
            # A container that was opened and never served has no departure yet, and no writers.
            container.departure = container.departure or Departure(container)
            with phases.phase("complete what is in flight"):
                await container.departure.complete_pending()
            self._pending_completed(container)
        for name, part in (("the log", container.log), ("the index", container.index)):
            try:
                with phases.phase(f"close {name}"):
                    await part.close()
            except Exception as error:  # if it still holds a lock, the next opening fails and is retried
                _log.warning("container %d: %s cannot be closed: %s", self.number, name, error)
        _log.info("container %d: closed in %s", self.number, phases)
        self._closing, self._departed = None, container.departure
        return Event.CLOSED

    def _pending_completed(self, container: Container) -> None:
        failure = container.failure
        if isinstance(failure, _Taken):  # dropped meanwhile: `_end` has removed its charge
            return
        self._forget_memory(container)
        if isinstance(failure, Fenced):
            self.on(Event.FENCED)

    async def stop(self) -> None:
        """Close a container that is open but not served, as the stop of the store interrupted the work on it."""
        closing, self._closing = self._closing, None
        await cancel(self.tasks)
        if closing is not None:
            try:
                await close(closing)
            except Exception as error:  # do not keep the other containers from their close
                _log.warning("container %d cannot be closed: %s", self.number, error)

    async def _sweep(self, opened: Opened) -> None:
        """Delete orphan chunks twice: a write of a former owner may reach long-term storage after the first sweep.

        The second sweep is retried until every orphan is deleted."""
        parts = self._store.parts
        number, record_swept, repeated = self.number, False, RepeatedLog(_log, parts.env.clock.monotonic)
        while True:
            try:
                swept = await opened.orphan_sweep.run(record_swept=record_swept)
                if swept:
                    _log.info("container %d: deleted %d chunks never referenced", number, swept)
                if record_swept:
                    return
            except SaritError as error:
                repeated.warning("", f"container {number}: chunks never referenced are not all deleted yet: {error}")
            # Wait for late writes of a former owner before the sweep that is recorded as complete.
            await asyncio.sleep(ORPHAN_SWEEP_RETRY_SECONDS if record_swept else parts.late_writes_seconds)
            record_swept = True


async def close(opened: Opened) -> None:
    """Close the log and the index of a container."""
    await opened.container.log.close()
    await opened.container.index.close()


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
