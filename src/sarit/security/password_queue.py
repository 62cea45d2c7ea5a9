"""Queues checks of passwords for the one thread that makes them, which takes about 20 ms for each.

One check runs at a time.  Checks of users who have logged in from their network before go first, taking turns by user
and network.  The others take turns by network.  If the queue is full, the network with the most waiting checks loses
its newest one to a network with fewer, so that many attempts from one network displace only each other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable
from sarit.security.limits import MAX_KNOWN_PASSWORD_CHECKS, MAX_PASSWORD_CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from sarit.env.ports import Worker


@dataclass(frozen=True, slots=True)
class _Check:
    call: Callable[[], bool]
    result: asyncio.Future[bool]


class PasswordQueue:
    """The queue of password checks of one process.  `worker`: the thread that makes them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._known = _Turns(MAX_KNOWN_PASSWORD_CHECKS)
        self._others = _Turns(MAX_PASSWORD_CHECKS)
        self._under_way = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<PasswordQueue, {len(self._known)} known and {len(self._others)} other checks wait>"

    async def run(self, call: Callable[[], bool], turn: Hashable, *, known: bool) -> bool:
        """Run `call` on the thread when it is the turn of `turn`.  Returns its result.  `known`: whether it goes first.
        Raises Unavailable."""
        if self._closed:
            raise Unavailable("the process stops")
        check = _Check(call, asyncio.get_running_loop().create_future())
        (self._known if known else self._others).put(turn, check)
        self._begin_next()
        return await check.result

    async def close(self) -> None:
        """Refuse the checks that wait, and end the thread."""
        self._closed = True
        while (check := self._known.take() or self._others.take()) is not None:
            check.result.set_exception(Unavailable("the process stops"))
        await self._worker.close()

    def _begin_next(self) -> None:
        if self._under_way or (check := self._known.take() or self._others.take()) is None:
            return
        self._under_way = True

        def done(right: bool | None, error: BaseException | None) -> None:
            self._under_way = False
            if not check.result.done():
                check.result.set_result(bool(right)) if error is None else check.result.set_exception(error)
            self._begin_next()

        self._worker.submit(check.call, done)


class _Turns:
    """The checks that wait, by turn; `most` at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[Hashable, deque[_Check]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, turn: Hashable, check: _Check) -> None:
        """Add a check.  Raises Unavailable: the queue is full, and no other turn has more checks than this one."""
        if self._count >= self._most:
            longest = max(self._waiting.values(), key=len)
            if len(longest) <= len(self._waiting.get(turn, ())) + 1:
                raise _too_many()
            displaced = longest.pop()  # the newest of at least two
            self._count -= 1
            if not displaced.result.done():
                displaced.result.set_exception(_too_many())
        self._waiting.setdefault(turn, deque()).append(check)
        self._count += 1

    def take(self) -> _Check | None:
        """Remove and return the oldest check of the next turn, skipping those that were cancelled; None: none waits."""
        while self._waiting:
            turn, checks = next(iter(self._waiting.items()))
            check = checks.popleft()
            self._count -= 1
            self._waiting.move_to_end(turn)
            if not checks:
                del self._waiting[turn]
            if not check.result.done():
                return check
        return None


def _too_many() -> Unavailable:
    return Unavailable("too many log-ins at once: try again")
