"""The ownership of durable logs on local files, from the claim to the opening.

A claim fences earlier owners.  The log of an owner in this process fails, its threads end and its descriptors close
before the first byte is read.  Owners in other processes are excluded by the lock on the directory.  Between claim and
opening the new owner reads in the index what the log must hold (`claims.py`).  `writer.py` has the open log.

Format and recovery: docs/formats/durable-log.md.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.core.errors import Fenced, Unavailable
from sarit.env.background import ignore_outcome, shielded
from sarit.log.claims import begin_after, begin_epoch, claim_files, open_files
from sarit.log.limits import LOG_FILE_BYTES
from sarit.log.port import sole_owner
from sarit.log.statistics import LogStatistics
from sarit.log.writer import LocalLog

if TYPE_CHECKING:
    from sarit.env.ports import Env, Worker
    from sarit.log.claims import ClaimedFiles
    from sarit.log.port import Confirm, LogHistory


class LocalLogProvider:
    """The logs under one directory, a subdirectory each.  `file_bytes`: the length up to which log files grow."""

    def __init__(
        self, env: Env, directory: str, file_bytes: int = LOG_FILE_BYTES, statistics: LogStatistics | None = None
    ) -> None:
        self._env = env
        self._statistics = statistics or LogStatistics()
        self._directory = directory
        self._file_bytes = file_bytes
        self._owners: dict[int, LocalClaim] = {}
        self._claiming: dict[int, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<LocalLogProvider {self._directory}>"

    async def claim(self, container: int, confirm: Confirm = sole_owner) -> LocalClaim:
        """Claim the log of a container: await `confirm`, fence an owner in this process, and lock the files.

        Raises Invalid (another format version), Unavailable (an owner in another process has locked the files)."""
        await confirm()
        # Make one claim at a time, so that a second one finds the first in `_owners` and fences it.
        async with self._claiming.setdefault(container, asyncio.Lock()):
            before = self._owners.pop(container, None)
            if before is not None:
                # This waits only for calls in progress, since the queue of a fenced log fails, and frees the lock.
                await before.fence()
            # Shield the claim from a cancellation, after which its thread would still finish it and hold the lock.
            claiming = asyncio.ensure_future(self._claim(container))
            try:
                claim = await shielded(claiming)
            except asyncio.CancelledError:
                claiming.add_done_callback(_release_unwanted)
                raise
            self._owners[container] = claim
            return claim

    async def open(self, container: int) -> LocalLog:
        """Claim and open a log whose owner has no index.  Raises Corrupt, Invalid, Unavailable."""
        claim = await self.claim(container)
        try:
            return await claim.open(None)
        except BaseException:
            await claim.release()
            raise

    async def create_after(self, container: int, history: LogHistory) -> LocalLog:
        """Create a log for a restored container, which continues after its checkpoint.  Raises Invalid, Unavailable."""
        claim = await self.claim(container)
        try:
            return await claim.create_after(history)
        except BaseException:
            await claim.release()
            raise

    async def _claim(self, container: int) -> LocalClaim:
        directory = f"{self._directory}/{container}"
        worker = self._env.threads.worker(f"log-{container}")
        try:
            claimed = await worker.run(lambda: claim_files(self._env, directory, container))
        except OSError as error:
            await worker.close()
            raise Unavailable(f"the log in {directory} cannot be opened: {error}") from error
        except BaseException:
            await worker.close()
            raise
        return LocalClaim(self._env, claimed, worker, self._file_bytes, self._statistics)


class LocalClaim:
    """A claimed log on local files (a `ClaimedLog`)."""

    def __init__(
        self, env: Env, claimed: ClaimedFiles, worker: Worker, file_bytes: int, statistics: LogStatistics
    ) -> None:
        self._env = env
        self._statistics = statistics
        self._claimed = claimed
        self._worker = worker
        self._file_bytes = file_bytes
        self._log: LocalLog | None = None
        self._fenced = False
        self._opening: asyncio.Future[LocalLog] | None = None
        self._releasing: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<LocalClaim of the log in {self._claimed.directory}>"

    async def open(self, history: LogHistory | None, *, accept_loss: bool = False) -> LocalLog:
        """Open the claimed log; may be called again after a failure.  `history`: None for an owner without an index."""
        if self._fenced or self._releasing is not None:
            raise Fenced(f"the log in {self._claimed.directory} was claimed by a later owner")
        # Shield the opening from a cancellation, after which its thread would still finish it.
        opening = self._opening = asyncio.ensure_future(self._open(history, accept_loss))
        try:
            self._log = await shielded(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        return self._log

    async def _open(self, history: LogHistory | None, accept_loss: bool) -> LocalLog:
        env, claimed, worker = self._env, self._claimed, self._worker
        try:
            opened = await worker.run(
                lambda: begin_epoch(env, claimed, history, self._file_bytes, accept_loss=accept_loss)
            )
        except OSError as error:
            raise Unavailable(f"the log in {claimed.directory} cannot be opened: {error}") from error
        return LocalLog(env, claimed.directory, claimed.container, opened, worker, self._statistics)

    async def create_after(self, history: LogHistory) -> LocalLog:
        env, claimed, worker = self._env, self._claimed, self._worker
        try:
            opened = await worker.run(lambda: begin_after(env, claimed, history, self._file_bytes))
        except OSError as error:
            raise Unavailable(f"the log in {claimed.directory} cannot be made: {error}") from error
        self._log = LocalLog(env, claimed.directory, claimed.container, opened, worker, self._statistics)
        return self._log

    async def fence(self) -> None:
        """End this owner's log, since a later owner claims it."""
        self._fenced = True
        if self._log is not None:
            self._log.fence()
            await self._log.close()
        else:
            await self.release()

    async def release(self) -> None:
        """Release the claim; do nothing once the log is open, which the owner closes instead."""
        if self._log is None:
            if self._releasing is None:
                self._releasing = asyncio.ensure_future(self._release())
            await shielded(self._releasing)

    async def _release(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                await self._opening.result().close()
                return
        await self._worker.close()
        with suppress(OSError):  # the descriptor is closed even if `close` reports an error
            self._claimed.lock.close()


def _release_unwanted(claiming: asyncio.Future[LocalClaim]) -> None:
    if not claiming.cancelled() and claiming.exception() is None:
        asyncio.ensure_future(claiming.result().release()).add_done_callback(ignore_outcome)


def _close_unwanted(opening: asyncio.Future[LocalLog]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().abandon()


__all__ = ["LocalClaim", "LocalLog", "LocalLogProvider", "open_files"]
