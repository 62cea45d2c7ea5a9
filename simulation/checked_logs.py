"""Watches the durable logs of a fleet from outside: what was acknowledged is in every later replay.

`CheckedLogs` wraps the logs of one process; `LogHistories` knows what all of them did.  A frame that was acknowledged
is found by every later owner that replays from below it, with its bytes.  No two owners acknowledge different frames
under one number.  On bookies, an acknowledged frame is on the disks of an ack quorum.

It also knows what a store does with its logs now: appends, recovers, rolls over (`busy_with`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from zlib import crc32

from sarit.log.bookkeeper import wire
from sarit.log.bookkeeper.entries import parse
from sarit.log.bookkeeper.open_log import BookKeeperLog
from sarit.log.port import sole_owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.log.port import ClaimedLog, Confirm, ConfirmableLogs, DurableLog, Frame, FrameDone, LogHistory

# How many bookies must have a frame, whichever sizes of ensembles a seed draws.
_ACK_QUORUM: Final = 2
_CONTAINER_AT: Final = slice(6, 10)  # of an entry's payload
_FORGET_EVERY: Final = 64


@dataclass(slots=True)
class _Container:
    """What is known of one container's log.  `replayed`: epoch, start and checksums of the newest replay."""

    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    below: int = 0
    replayed: tuple[int, int, dict[int, int]] = (0, 0, {})


class LogHistories:
    """Of all processes.  `failed` is called with each violation; `entered` with a store's host and what it began."""

    def __init__(self, failed: Callable[[str], None], entered: Callable[[str, str], None]) -> None:
        self.failed = failed
        self.entered = entered
        self._containers: dict[int, _Container] = {}
        self._synced: dict[tuple[int, int, int], dict[int, list[set[str]]]] | None = None
        self._doing: dict[str, Counter[str]] = {}
        self._open: dict[str, list[CheckedLog]] = {}

    def __repr__(self) -> str:
        return f"<LogHistories of {len(self._containers)} containers>"

    def of(self, container: int) -> _Container:
        """The history of one container."""
        return self._containers.setdefault(container, _Container())

    def watch_bookies(self) -> None:
        """From now on `synced` is called."""
        self._synced = {}

    def synced(self, bookie: str, ledger: int, entry: int, body: bytes) -> None:
        """An entry is on a bookie's disk."""
        assert self._synced is not None
        payload = wire.parse_entry(body, ledger, entry).payload
        found = parse(payload, int.from_bytes(payload[_CONTAINER_AT]))
        if found.parts:
            copies = self._synced.setdefault((found.container, found.epoch, found.frame), {})
            copies.setdefault(ledger, [set() for _ in range(found.parts)])[found.part].add(bookie)
            if found.frame % _FORGET_EVERY == 0:
                self._forget(found.container)

    def _copies(self, container: int, epoch: int, number: int) -> int:
        """The bookies that have all of a frame, in the ledger that has it best."""
        assert self._synced is not None
        ledgers = self._synced.get((container, epoch, number), {})
        return max((min(map(len, parts)) for parts in ledgers.values()), default=0)

    def _forget(self, container: int) -> None:
        assert self._synced is not None
        below = self.of(container).below
        for key in [key for key in self._synced if key[0] == container and key[2] < below]:
            del self._synced[key]

    # -- what stores do now -----------------------------------------------------------------------

    def begin(self, host: str, what: str) -> None:
        """A store begins something."""
        self._doing.setdefault(host, Counter())[what] += 1
        self.entered(host, what)

    def end(self, host: str, what: str) -> None:
        """It has ended."""
        self._doing.setdefault(host, Counter())[what] -= 1

    def forget(self, host: str) -> None:
        """The process on a host has ended."""
        self._doing.pop(host, None)
        self._open.pop(host, None)

    def opened(self, host: str, log: CheckedLog) -> None:
        """A store has a log."""
        self._open.setdefault(host, []).append(log)

    def closed(self, host: str, log: CheckedLog) -> None:
        """It has it no more."""
        if log in self._open.get(host, ()):
            self._open[host].remove(log)

    def busy_with(self, host: str) -> set[str]:
        """What a store does now."""
        found = {what for what, count in self._doing.get(host, {}).items() if count > 0}
        if any(log.rolls_over for log in self._open.get(host, ())):
            found.add("rolling over")
        return found

    # -- the rules --------------------------------------------------------------------------------

    def acknowledged(self, container: int, epoch: int, number: int, checksum: int) -> None:
        """A frame was acknowledged."""
        known = self.of(container)
        earlier = known.acked.get(number)
        if earlier is not None and earlier[1] != checksum and earlier[0] != epoch:
            self.failed(f"two-owners: frame {number} of container {container} in epochs {earlier[0]} and {epoch}")
        later, after, found = known.replayed
        if later > epoch and number > after and found.get(number) != checksum:
            self.failed(f"log-lost: frame {number} of container {container}, acknowledged after epoch {later} began")
        known.acked[number] = epoch, checksum
        if self._synced is not None and number >= known.below:
            copies = self._copies(container, epoch, number)
            if copies < _ACK_QUORUM:
                self.failed(
                    f"no-quorum: frame {number} of container {container} is acknowledged, and on {copies} disks"
                )

    def replayed(self, container: int, epoch: int, after: int, found: dict[int, int]) -> None:
        """An owner has replayed its log."""
        known = self.of(container)
        for number, (acked_in, checksum) in known.acked.items():
            if number > after and number >= known.below and acked_in < epoch and found.get(number) != checksum:
                self.failed(f"log-lost: frame {number} of container {container}, acknowledged in epoch {acked_in}")
        if epoch > known.replayed[0]:
            known.replayed = epoch, after, found

    def truncated(self, container: int, below: int) -> None:
        """Frames below are not needed any more."""
        known = self.of(container)
        if below > known.below:
            known.below = below
            known.acked = {number: acked for number, acked in known.acked.items() if number >= below}


class CheckedLogs:
    """`ConfirmableLogs` of one process, on the logs that are checked."""

    def __init__(self, logs: ConfirmableLogs, histories: LogHistories, host: str) -> None:
        self._logs = logs
        self._histories = histories
        self._host = host

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> CheckedClaim:
        """See `LogProvider`, and `Confirm`."""
        self._histories.begin(self._host, "recovering")
        try:
            return CheckedClaim(await self._logs.claim(container, confirm), self._histories, self._host, container)
        except BaseException:
            self._histories.end(self._host, "recovering")
            raise


class CheckedClaim:
    """See `ClaimedLog`."""

    def __init__(self, claim: ClaimedLog, histories: LogHistories, host: str, container: int) -> None:
        self._claim = claim
        self._histories = histories
        self._host = host
        self._container = container

    async def open(self, history: LogHistory, *, accept_loss: bool = False) -> CheckedLog:
        """See `ClaimedLog`."""
        log = await self._claim.open(history, accept_loss=accept_loss)
        return CheckedLog(log, self._histories, self._host, self._container)

    async def release(self) -> None:
        """See `ClaimedLog`."""
        self._histories.end(self._host, "recovering")
        await self._claim.release()


class CheckedLog:
    """See `DurableLog`."""

    def __init__(self, log: DurableLog, histories: LogHistories, host: str, container: int) -> None:
        self._log = log
        self._histories = histories
        self._host = host
        self._container = container
        self._recovering = True
        self._under_way = 0
        histories.opened(host, self)

    def __repr__(self) -> str:
        return f"<CheckedLog of {self._log!r}>"

    @property
    def epoch(self) -> int:
        """See `DurableLog`."""
        return self._log.epoch

    @property
    def identity(self) -> bytes:
        """See `DurableLog`."""
        return self._log.identity

    @property
    def frames_in_flight(self) -> int:
        """See `DurableLog`."""
        return self._log.frames_in_flight

    @property
    def rolls_over(self) -> bool:
        """Whether a ledger is left, or the next one is made."""
        log = self._log
        return isinstance(log, BookKeeperLog) and (log._preparing is not None or bool(log._leaving))

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """See `DurableLog`."""
        checksum = 0
        for part in payload:
            checksum = crc32(part, checksum)
        if not self._under_way:
            self._histories.begin(self._host, "appending")
        self._under_way += 1

        def checked(error: BaseException | None) -> None:
            self._under_way -= 1
            if not self._under_way:
                self._histories.end(self._host, "appending")
            if error is None:
                self._histories.acknowledged(self._container, self.epoch, number, checksum)
            done(error)

        self._log.append(number, payload, checked)
        if self.rolls_over:
            self._histories.entered(self._host, "rolling over")

    async def replay(self, after: int) -> AsyncIterator[Frame]:
        """See `DurableLog`."""
        found: dict[int, int] = {}
        try:
            async for frame in self._log.replay(after):
                found[frame.number] = crc32(frame.payload)
                yield frame
            self._histories.replayed(self._container, self.epoch, after, found)
        finally:
            self._recovered()

    def _recovered(self) -> None:
        if self._recovering:
            self._recovering = False
            self._histories.end(self._host, "recovering")

    def truncate(self, below: int) -> None:
        """See `DurableLog`."""
        self._histories.truncated(self._container, below)
        self._log.truncate(below)

    @property
    def short_of_space(self) -> bool:
        """See `DurableLog`."""
        return self._log.short_of_space

    def backlog_bytes(self) -> int:
        """See `DurableLog`."""
        return self._log.backlog_bytes()

    def release_recycled_files(self) -> None:
        """See `DurableLog`."""
        self._log.release_recycled_files()

    async def close(self) -> None:
        """See `DurableLog`."""
        self._recovered()
        self._histories.closed(self._host, self)
        await self._log.close()


__all__ = ["CheckedLog", "CheckedLogs", "LogHistories"]
