"""Outcomes of decided transactions: polled one at a time for all callers, so that many cost little more than one.

Our controller replies when a decision is executed (docs/decisions/0404).  Other controllers do not, and ours may take
longer than a call.  Then the caller is registered here.  While there are any, the transaction of the longest waiting
caller is polled.  When it has ended, the next is polled at once, for it probably has, too.  When it has not, there is a
pause that doubles each time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.client.core.values import TransactionStatus
from sarit.client.limits import FIRST_OUTCOME_POLL_SECONDS, MAX_OUTCOME_POLL_SECONDS
from sarit.core.errors import SaritError, TimedOut, Unavailable

if TYPE_CHECKING:
    from sarit.client.session.session import Session
    from sarit.client.transactions.calls import TransactionCalls

_TRANSIENT: Final = (TransactionStatus.COMMITTING, TransactionStatus.ABORTING)


class TransactionOutcomes:
    """The outcomes of one writer's transactions."""

    def __init__(self, session: Session, calls: TransactionCalls) -> None:
        self._session = session
        self._calls = calls
        self._waiting: dict[asyncio.Future[TransactionStatus], int] = {}
        self._polling: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"TransactionOutcomes({len(self._waiting)} waiting)"

    async def of(self, number: int) -> TransactionStatus:
        """Return how a decided transaction ended.  Raises NotFound, TimedOut (it takes too long)."""
        future: asyncio.Future[TransactionStatus] = asyncio.get_running_loop().create_future()
        self._waiting[future] = number
        if self._polling is None:
            self._polling = self._session.background.spawn(self._poll(), "outcomes of transactions")
        try:
            async with asyncio.timeout(self._session.policy.timeout):
                return await future
        except TimeoutError:
            raise TimedOut(f"transaction {number:032x} is decided, but has not ended yet") from None
        finally:
            self._waiting.pop(future, None)

    async def _poll(self) -> None:
        pause = FIRST_OUTCOME_POLL_SECONDS
        try:
            while self._waiting:
                future, number = next(iter(self._waiting.items()))
                try:
                    status = await self._calls.status(number)
                except Unavailable:
                    # As if it had not ended yet: the pause doubles, and the caller's time-out ends the wait.
                    status = TransactionStatus.COMMITTING
                except SaritError as error:
                    self._waiting.pop(future, None)
                    if not future.done():
                        future.set_exception(error)
                    continue
                if status in _TRANSIENT:
                    if self._waiting.pop(future, None) is not None:
                        self._waiting[future] = number  # to the end: no caller waits for another's transaction
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_OUTCOME_POLL_SECONDS)
                    continue
                pause = FIRST_OUTCOME_POLL_SECONDS
                self._waiting.pop(future, None)
                if not future.done():
                    future.set_result(status)
        finally:
            self._polling = None
            # Callers are left only when this task was cancelled or has failed.
            for future in self._waiting:
                if not future.done():
                    future.set_exception(Unavailable("the client was closed before a transaction had ended"))
