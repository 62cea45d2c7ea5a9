"""The ownership of durable logs on BookKeeper, from the claim to the opening.

A claim fences earlier owners: it recovers every ledger of the chain that is not closed, so that its writer gets no
acknowledgement any more.  The opening creates a ledger and begins the epoch by a compare-and-set of the chain.  From
then on no other owner can add a ledger, so the chain is complete, and is replayed.  `open_log.py` has the open log.

If the earlier owner has changed the chain between claim and opening (it rolled over, or freed a ledger), the chain is
fenced again.  If another opener has changed it, the opening ends in Fenced.
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

# How often an opening fences the chain again after its owner has changed it.
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
        # The bookies seen in ledgers: when too few are registered, an absent one takes a place in a new ensemble.
        self.known: set[str] = set()
        # The epoch and the ledger that were fenced while no other owner was known, by container.
        self._fences: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<BookKeeperLogs {self.settings}>"

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> BookKeeperClaim:
        """Claim the log of a container: read its chain, await `confirm`, and fence the earlier owner.

        An owner that comes after the chain was read changes the chain.  So a claim that was delayed after `confirm`
        fences nothing of that owner, and fails.  Raises Corrupt (a ledger is missing, or the chain is damaged),
        Unavailable."""
        claim = BookKeeperClaim(self, container)
        found = await self.registers.get(register_of(container))
        await confirm()
        await claim.fence(found)
        return claim

    async def create_after(self, container: int, history: LogHistory) -> BookKeeperLog:
        """Claim and create the log of a restored container, as `BookKeeperClaim.create_after` does."""
        return await (await self.claim(container)).create_after(history)

    async def open(self, container: int) -> BookKeeperLog:
        """Claim and open a log whose owner has no index.  Raises Corrupt, Fenced, Unavailable."""
        return await (await self.claim(container)).open(None)

    def new_metadata(self, container: int, epoch: int) -> LedgerMetadata:
        """Return the metadata of a new ledger.  Raises Unavailable (too few bookies)."""
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
        """Count and log a fence that came from no other owner.  `before`: the epoch of the chain before this one.

        One compare-and-set changed the chain from that epoch to this one, so there was no other owner in between."""
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
        # Fill up with absent bookies, which may come back, since a quorum needs fewer than all.
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
    """A claimed log on BookKeeper (a `ClaimedLog`)."""

    def __init__(self, logs: BookKeeperLogs, container: int) -> None:
        self._logs = logs
        self._container = container
        self._register = register_of(container)
        self._chain: Chain | None = None
        self._version = 0
        # The last frame and the bytes of each ledger that this claim closed.
        self._ends: dict[int, tuple[int, int]] = {}
        self._metadata: dict[int, LedgerMetadata] = {}

    def __repr__(self) -> str:
        return f"<BookKeeperClaim of {self._container} {self._chain}>"

    async def fence(self, found: Versioned | None) -> None:
        """Recover and close every open ledger of the chain `found` in the register."""
        self._ends.clear()
        self._chain = None
        if found is None:
            return
        self._chain, self._version = chains.decode(found.value), found.version
        # Close all open ledgers, since an owner that rolls over has two.
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
        """Return the last complete frame of a ledger; the one before its first when it has none."""
        at = metadata.last_entry
        reader = LedgerReader(self._logs.bookies, self._logs.store, ledger.ledger, metadata)
        while at >= 0:
            entry = parse(await reader.entry(at), self._container)
            if entry.ends_frame:
                return entry.frame
            # Go back over an entry without a frame, or over all parts of an incomplete frame.
            at -= entry.part + 1
        return ledger.first - 1

    async def open(self, history: LogHistory | None, *, accept_loss: bool = False) -> BookKeeperLog:
        """Open the claimed log.  `history`: None for an owner without an index.

        Raises Corrupt, Fenced, Unavailable."""
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
            # Check the owner before fencing again, which would fence the ledger of an opener that was faster.
            found = await self._logs.registers.get(self._register)
            now = None if found is None else chains.decode(found.value)
            # Raise the problem only for the newest chain: the index, opened later, may know of a newer owner.
            if problem is not None and now == self._chain:
                raise problem
            if now is None or before is None or (now.identity, now.epoch) != (before.identity, before.epoch):
                raise Fenced(f"the log of container {self._container} was opened by another owner")
            await self.fence(found)
        raise Unavailable(f"the log of container {self._container} is changed all the time by its owner")

    async def create_after(self, history: LogHistory) -> BookKeeperLog:
        """Create a log for a restored container, which continues after its checkpoint, in a later epoch.

        The log of an earlier attempt is opened instead, if it never had a frame.  Raises Invalid (it has frames),
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
        """Do nothing: a claim holds nothing, and the ledgers that it fenced stay fenced."""

    # -- the new epoch ---------------------------------------------------------------------------

    def _base(self, history: LogHistory | None, *, accept_loss: bool) -> Chain:
        """Return the chain on which the new epoch begins, with its open ledgers closed.  Raises Corrupt."""
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
        """Create a ledger and store the chain of the new epoch.  Returns None if the chain has changed meanwhile."""
        logs = self._logs
        epoch = max(base.epoch, 0 if history is None else history.epoch) + 1
        metadata = logs.new_metadata(self._container, epoch)
        ledger = await logs.store.new_id()
        # Note the ledger in the chain before it is created: if this process ends now, a later owner deletes it.
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
            with suppress(SaritError):  # otherwise the owner that was faster deletes the ledger
                await logs.store.delete(ledger, version)
            return None
        logs.epoch_begun(self._container, base.epoch)
        old = {each.ledger: self._metadata[each.ledger] for each in base.ledgers}
        return Opened(chain, stored, old, ledger, metadata, version, asked_at)

    async def _store(self, chain: Chain) -> int | None:
        """Store the chain in its register.  Returns the new version; None when somebody else has changed the chain.

        Raises Unavailable (the outcome is unknown)."""
        registers, name, data = self._logs.registers, self._register, chains.encode(chain)
        deadline = self._logs.env.clock.monotonic() + LEDGER_PROOF_TIMEOUT_SECONDS
        while True:
            try:
                if self._chain is None:
                    return await registers.create(name, data)
                return await registers.set(name, data, self._version)
            except (Conflict, NotFound, Exists):
                # Check whether an earlier attempt, whose answer was lost, has stored the chain.
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
            return None  # log and index are both new
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
