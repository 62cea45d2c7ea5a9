"""The durable log of a container on BookKeeper: who owns it, from the claim to the opening.

A claim fences: every ledger of the chain that is not closed is recovered, so its writer gets no acknowledgement any
more.  The opening creates a ledger and begins the epoch by a compare-and-set of the chain.  From then on no other owner
can add a ledger, so what the chain names is all there is.  Only then is anything replayed.  What an open log does is in
`open_log.py`.

A chain that an earlier owner changed between claim and opening (it rolled over, or freed a ledger) is fenced once more.
One that another opener changed ends in Fenced.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Conflict, Corrupt, Exists, Fenced, Invalid, NotFound, SaritError, Unavailable
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.env.background import gather
from sarit.log.bookkeeper import chain as chains
from sarit.log.bookkeeper.chain import Chain
from sarit.log.bookkeeper.entries import parse
from sarit.log.bookkeeper.ledgers import LedgerReader, recover_ledger
from sarit.log.bookkeeper.limits import (
    LEDGER_PROOF_TIMEOUT_SECONDS,
    METADATA_RETRY_SECONDS,
)
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.open_log import BookKeeperLog, Opened
from sarit.log.bookkeeper.port import LedgerSettings
from sarit.log.port import sole_owner
from sarit.log.statistics import BookieCounts, LogStatistics

if TYPE_CHECKING:
    from sarit.coordination.port import Registers, Versioned
    from sarit.env.ports import Env
    from sarit.log.bookkeeper.port import Bookies, LedgerStore
    from sarit.log.port import Confirm, LogHistory

_log = logging.getLogger("sarit.log")

# How many times the chain may change between claim and opening.
_MAX_ATTEMPTS: Final = 8


def register_of(container: int) -> str:
    """Return the register that holds the chain of a container."""
    return f"log/{container}"


class BookKeeperLogs:
    """The provider of logs on BookKeeper.  `bookies` and `store` belong to one process."""

    def __init__(
        self, env: Env, bookies: Bookies, store: LedgerStore, registers: Registers,
        settings: LedgerSettings | None = None, statistics: LogStatistics | None = None,
    ) -> None:  # fmt: skip
        self.env = env
        self.bookies = bookies
        self.store = store
        self.registers = registers
        self.statistics = statistics or LogStatistics()
        self.statistics.count_bookies_with(self._count_bookies)
        self.settings = settings if settings is not None else LedgerSettings()
        # Bookies seen in ledgers: where too few are registered, one that is away takes a place.
        self.known: set[str] = set()
        # By container: the epoch and the ledger that was fenced while no other owner was known.
        self._fences: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<BookKeeperLogs {self.settings}>"

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> BookKeeperClaim:
        """Claim the log of a container, and fence its earlier owner; `confirm` is asked in between.  Raises Corrupt (a
        ledger is missing, or the chain damaged), Unavailable.

        An owner that comes after the chain was read changes it.  So a claim that was confirmed and then held up fences
        nothing of that owner, and fails."""
        claim = BookKeeperClaim(self, container)
        found = await self.registers.get(register_of(container))
        await confirm()
        await claim.fence(found)
        return claim

    async def create_after(self, container: int, history: LogHistory) -> BookKeeperLog:
        """Create an empty log that continues a history, as `BookKeeperClaim.create_after` does."""
        return await (await self.claim(container)).create_after(history)

    async def open(self, container: int) -> BookKeeperLog:
        """Claim and open a log whose owner has no index.  Raises Corrupt, Fenced, Unavailable."""
        return await (await self.claim(container)).open(None)

    def new_metadata(self, container: int, epoch: int) -> LedgerMetadata:
        """That of a new ledger.  Raises Unavailable: too few bookies."""
        settings = self.settings
        return LedgerMetadata(
            settings.ensemble_size, settings.write_quorum, settings.ack_quorum, LedgerState.OPEN,
            ((0, self._ensemble()),), created_ms=self.env.clock.wall_ms(),
            custom={"application": b"sarit", "container": b"%d" % container, "epoch": b"%d" % epoch},
            ctoken=int.from_bytes(self.env.random.bytes(7)),
        )  # fmt: skip

    def _count_bookies(self) -> BookieCounts:
        writable, settings = self.bookies.writable(), self.settings
        known = len(self.known | writable)
        return BookieCounts(len(writable), known, settings.ack_quorum, settings.ensemble_size)

    def note_fence(self, container: int, epoch: int, ledger: int) -> None:
        self._fences[container] = (epoch, ledger)

    def epoch_begun(self, container: int, before: int) -> None:
        """Count and log a fence after which nobody else has owned the log: `before` is the last epoch of its chain.

        The chain was changed from that one to ours by one compare-and-set, so no other owner can lie between."""
        epoch, ledger = self._fences.pop(container, (0, 0))
        if epoch and epoch == before:
            self.statistics.ledgers_recovered += 1
            _log.warning(
                "the log of container %d goes on with a new ledger: ledger %d was closed by BookKeeper's own recovery, "
                "and by no other store; where it does that often, read about autoRecoveryDaemonEnabled and "
                "openLedgerRereplicationGracePeriod in bk_server.conf",
                container, ledger,
            )  # fmt: skip

    def _ensemble(self) -> tuple[str, ...]:
        settings = self.settings
        writable = sorted(self.bookies.writable())
        self.known.update(writable)
        # One that is away may come back, and the quorum needs fewer than all.
        away = sorted(self.known.difference(writable))
        chosen = self._shuffled(writable)[: settings.ensemble_size]
        if len(chosen) < settings.ack_quorum or len(chosen) + len(away) < settings.ensemble_size:
            raise Unavailable(
                f"{len(writable)} bookies are registered as writable, and a ledger needs {settings.ensemble_size}: "
                "start more of them, or choose smaller e, w, a"
            )
        return tuple(chosen + away[: settings.ensemble_size - len(chosen)])

    def _shuffled(self, names: list[str]) -> list[str]:
        return sorted(names, key=lambda name: (self.env.random.random(), name))


class BookKeeperClaim:
    """A claimed log on BookKeeper, not open yet."""

    def __init__(self, logs: BookKeeperLogs, container: int) -> None:
        self._logs = logs
        self._container = container
        self._register = register_of(container)
        self._chain: Chain | None = None
        self._version = 0
        # The ledgers that this claim closed: the last frame, and the bytes.
        self._ends: dict[int, tuple[int, int]] = {}
        self._metadata: dict[int, LedgerMetadata] = {}

    def __repr__(self) -> str:
        return f"<BookKeeperClaim of {self._container} {self._chain}>"

    async def fence(self, found: Versioned | None) -> None:
        """Close every ledger that is not closed of the chain that was read from its register."""
        self._ends.clear()
        self._chain = None
        if found is None:
            return
        self._chain, self._version = chains.decode(found.value), found.version
        # All of them: an owner that rolls over has two.
        tasks = [asyncio.ensure_future(self._close(each)) for each in self._chain.ledgers]
        try:
            await gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self, ledger: chains.ChainLedger) -> None:
        logs = self._logs
        try:
            metadata = await recover_ledger(logs.bookies, logs.store, ledger.ledger)
        except NotFound as error:
            raise Corrupt(
                f"ledger {ledger.ledger} of container {self._container} is missing: its metadata was deleted"
            ) from error
        self._metadata[ledger.ledger] = metadata
        for _, bookies in metadata.ensembles:
            logs.known.update(bookies)
        if not ledger.closed:
            last = await self._last_frame(ledger, metadata)
            self._ends[ledger.ledger] = (last, metadata.length)

    async def _last_frame(self, ledger: chains.ChainLedger, metadata: LedgerMetadata) -> int:
        """Return the last frame that is complete in a ledger; the one before its first when there is none."""
        at = metadata.last_entry
        reader = LedgerReader(self._logs.bookies, self._logs.store, ledger.ledger, metadata)
        while at >= 0:
            entry = parse(await reader.entry(at), self._container)
            if entry.ends_frame:
                return entry.frame
            # Entries without a frame follow one that is whole; parts of a frame follow each other.
            at -= entry.part + 1
        return ledger.first - 1

    async def open(self, history: LogHistory | None, *, accept_loss: bool = False) -> BookKeeperLog:
        """Open the claimed log; `history` None: the owner has no index.  Raises Corrupt, Fenced, Unavailable."""
        before = self._chain
        for _ in range(_MAX_ATTEMPTS):
            problem: Corrupt | None = None
            try:
                base = self._base(history, accept_loss=accept_loss)
            except Corrupt as error:
                problem = error
            else:
                opened = await self._begin(base, history)
                if opened is not None:
                    return BookKeeperLog(self._logs, self._container, opened)
            # Before anything is fenced again: it would be the ledger of the opener that was faster.
            found = await self._logs.registers.get(self._register)
            now = None if found is None else chains.decode(found.value)
            # The index was opened after the claim: it may know of an owner that the chain did not know then.
            if problem is not None and now == self._chain:
                raise problem
            if now is None or before is None or (now.identity, now.epoch) != (before.identity, before.epoch):
                raise Fenced(f"the log of container {self._container} was opened by another owner")
            await self.fence(found)
        raise Unavailable(f"the log of container {self._container} is changed all the time by its owner")

    async def create_after(self, history: LogHistory) -> BookKeeperLog:
        """Return a new log for a restored container, which continues after its checkpoint, in a later epoch.

        One that an earlier attempt made is taken, as long as it never had a frame.  Raises Invalid (it has some),
        Fenced, Unavailable."""
        base = Chain(self._logs.env.random.bytes(LOG_IDENTITY_BYTES), history.epoch, history.frame)
        if self._chain is not None:
            base = self._base(None, accept_loss=False)
            if base.ledgers or base.reached != history.frame:
                raise Invalid(f"container {self._container} has a log on BookKeeper already, with frames")
        opened = await self._begin(base, history)
        if opened is None:
            raise Fenced(f"the log of container {self._container} was opened by another owner")
        return BookKeeperLog(self._logs, self._container, opened)

    async def release(self) -> None:
        """Give the claim up: what was fenced stays so, and nothing is held."""

    # -- the new epoch ---------------------------------------------------------------------------

    def _base(self, history: LogHistory | None, *, accept_loss: bool) -> Chain:
        """Return the chain as the new epoch finds it, with its open ledgers closed.  Raises Corrupt."""
        chain = self._chain
        if chain is not None:
            for ledger, (last, size) in self._ends.items():
                chain = chains.close(chain, ledger, last, size, self._logs.env.clock.wall_ms())
        problem = None if history is None else history_problem(self._container, chain, history)
        if problem is not None:
            raise Corrupt(f"{problem}; a log on BookKeeper cannot be opened with a loss" if accept_loss else problem)
        if chain is not None:
            return chain
        return Chain(self._logs.env.random.bytes(LOG_IDENTITY_BYTES))

    async def _begin(self, base: Chain, history: LogHistory | None) -> Opened | None:
        """Create a ledger and store the chain; None when the chain is another one by now."""
        logs = self._logs
        epoch = max(base.epoch, 0 if history is None else history.epoch) + 1
        metadata = logs.new_metadata(self._container, epoch)
        ledger = await logs.store.new_id()
        # The chain knows of the ledger before it is there: if this process ends now, a later owner deletes it.
        reserved = chains.reserve(base if self._chain is None else self._chain, ledger, logs.env.clock.wall_ms())
        stored = await self._store(reserved)
        if stored is None:
            return None
        self._chain, self._version = reserved, stored
        asked_at = logs.env.clock.monotonic()
        _, version = await logs.store.create(metadata, ledger)
        chain = chains.begin_epoch(base, epoch, {}, ledger)
        stored = await self._store(chain)
        if stored is None:
            with suppress(SaritError):  # else the owner that was faster deletes it
                await logs.store.delete(ledger, version)
            return None
        logs.epoch_begun(self._container, base.epoch)
        old = {each.ledger: self._metadata[each.ledger] for each in base.ledgers}
        return Opened(chain, stored, old, ledger, metadata, version, asked_at)

    async def _store(self, chain: Chain) -> int | None:
        """Return the version of the chain in its register; None when somebody else has changed it.

        Raises Unavailable, and the outcome is unknown."""
        registers, name, data = self._logs.registers, self._register, chains.encode(chain)
        deadline = self._logs.env.clock.monotonic() + LEDGER_PROOF_TIMEOUT_SECONDS
        while True:
            try:
                if self._chain is None:
                    return await registers.create(name, data)
                return await registers.set(name, data, self._version)
            except (Conflict, NotFound, Exists):
                # It may be ours all the same: the answer to an earlier attempt was lost.
                found = await registers.get(name)
                return found.version if found is not None and found.value == data else None
            except Unavailable:
                if self._logs.env.clock.monotonic() >= deadline:
                    raise
                await asyncio.sleep(METADATA_RETRY_SECONDS)


def history_problem(container: int, chain: Chain | None, history: LogHistory) -> str | None:
    """Return why the log is not the one that the index knows; None when it is."""
    if history.identity is None:
        if chain is None or chain.reached == 0:
            return None  # neither has ever held anything
        return (
            f"the log of container {container} on BookKeeper has {chain.reached} frames, and the index has never seen "
            "one: the index is missing or another one; put it back"
        )
    if chain is None:
        return f"the log of container {container} is missing in BookKeeper: is this the right cluster and name?"
    if chain.identity != history.identity:
        return (
            f"the log of container {container} is of another history: it has the identity {chain.identity.hex()}, "
            f"the index knows {history.identity.hex()}; put back the log and the index that belong together"
        )
    if chain.epoch < history.epoch or chain.reached < history.frame:
        return (
            f"the log of container {container} is an older copy: it ends with epoch {chain.epoch} and frame "
            f"{chain.reached}, the index knows epoch {history.epoch} and frame {history.frame}; put back the newest one"
        )
    return None


__all__ = ["BookKeeperClaim", "BookKeeperLog", "BookKeeperLogs", "history_problem"]
