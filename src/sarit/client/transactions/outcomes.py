"""When decided transactions have ended: one question at a time for all that wait, so that many cost little more.

A controller of ours replies when a decision is carried out (docs/decisions/0404).  Others tell nobody, and ours may
take longer than a call: whoever waits then is entered here; as long as anybody is, the one that waits longest is asked
about.  When it has ended the next is asked about at once, for it probably has, too; when it has not, there is a pause,
longer each time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.client.core.values import TransactionStatus
from sarit.core.errors import SaritError, Unavailable
from sarit.core.limits import FIRST_OUTCOME_POLL_SECONDS, MAX_OUTCOME_POLL_SECONDS

if TYPE_CHECKING:
    from sarit.client.core.session import Session
    from sarit.client.transactions.calls import TransactionCalls

_PASSING: Final = (TransactionStatus.COMMITTING, TransactionStatus.ABORTING)


class TransactionOutcomes:
    """Those of one writer's transactions."""

    def __init__(self, session: Session, calls: TransactionCalls) -> None:
        self._session = session
        self._calls = calls
        self._waiting: dict[asyncio.Future[TransactionStatus], int] = {}
        self._asking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Endings({len(self._waiting)} waiting)"

    async def of(self, number: int) -> TransactionStatus:
        """What a transaction that was decided ended as.  Raises NotFound, Unavailable (it takes too long)."""
        future: asyncio.Future[TransactionStatus] = asyncio.get_running_loop().create_future()
        self._waiting[future] = number
        if self._asking is None:
            self._asking = self._session.background.spawn(self._ask(), "endings of transactions")
        try:
            async with asyncio.timeout(self._session.retry_timeout):
                return await future
        except TimeoutError:
            raise Unavailable(f"transaction {number:032x} is decided, but has not ended yet") from None
        finally:
            self._waiting.pop(future, None)

    async def _ask(self) -> None:
        pause = FIRST_OUTCOME_POLL_SECONDS
        try:
            while self._waiting:
                future, number = next(iter(self._waiting.items()))
                try:
                    status = await self._calls.status(number)
                except Unavailable:
                    status = TransactionStatus.COMMITTING
                except SaritError as error:
                    self._waiting.pop(future, None)
                    if not future.done():
                        future.set_exception(error)
                    continue
                if status in _PASSING:
                    if self._waiting.pop(future, None) is not None:
                        self._waiting[future] = number  # at the end: nobody waits for another's ending
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_OUTCOME_POLL_SECONDS)
                    continue
                pause = FIRST_OUTCOME_POLL_SECONDS
                self._waiting.pop(future, None)
                if not future.done():
                    future.set_result(status)
        finally:
            self._asking = None
            for future in self._waiting:
                if not future.done():
                    future.set_exception(Unavailable("the client was closed before a transaction had ended"))
