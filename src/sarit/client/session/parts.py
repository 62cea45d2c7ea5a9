"""The writers and readers of one client: notified of its end, and released when their user drops them.

A writer is held until it is closed: what it was given is still to be sent.  A reader is held weakly.  When it was
neither closed nor read to its end and nobody refers to it any more, `dropped` stops what it fetches and gives a
ResourceWarning.  The garbage collector may do that on any thread.  In a simulated world readers are held, too: there
the moment of a collection must decide nothing.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sarit.core.errors import Invalid

P = ParamSpec("P")


class ClientPart(Protocol):
    """A writer or reader, as its client sees it."""

    def client_closed(self) -> None:
        """Fail whatever is pending, since the client was closed."""


class Owner(Protocol):
    """The session of a client, as its parts see it."""

    parts: Parts
    loop: asyncio.AbstractEventLoop
    ended: str


log = logging.getLogger(__name__)

# Frames between a line of the user and a warning: this package, and the module that calls finalizers.
_NOT_OF_USERS: Final = (f"{Path(__file__).parents[2]}{os.sep}", weakref.__file__)


class Unacknowledged(NamedTuple):
    """The part of a writer's events that is not acknowledged: `amount` of `what`, and how to wait for it."""

    amount: int
    what: str
    flush: Callable[[], Any]


def warn_of_loss(left: Unacknowledged) -> None:
    """Log what an abandoned writer had not been acknowledged, if there is any."""
    if left.amount:
        log.warning(
            "a writer was abandoned, as by an error in its block, with %d %s not acknowledged: they may be lost",
            *left[:2],
        )


def warn_user(text: str) -> None:
    """Give a ResourceWarning that points to the line of the user's program, not to one of ours."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_OF_USERS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, ResourceWarning, stacklevel=level)


class Hooks(NamedTuple):
    """`forked`: called in a child process.  `unacknowledged`: what would be lost now."""

    forked: Callable[[Invalid], None] | None = None
    unacknowledged: Callable[[], Unacknowledged] | None = None


class Parts:
    """All of them, in the order of their registration."""

    def __init__(self) -> None:
        self.holds_readers = True
        self._held: dict[ClientPart, Hooks] = {}
        self._weak: dict[int, weakref.ref[ClientPart]] = {}
        self.waiting: dict[ClientPart, None] = {}  # readers in a wait

    def __repr__(self) -> str:
        return f"Parts({len(self._held)} held, {len(self._weak)} readers)"

    def __len__(self) -> int:
        return len(self._held) + len(self._weak)

    def hold(self, part: ClientPart, hooks: Hooks | None = None) -> None:
        """Hold `part` until it is removed."""
        self._held[part] = hooks or Hooks()

    def hold_weakly(self, part: ClientPart) -> None:
        """Know `part` as long as its user refers to it."""
        if self.holds_readers:
            self.hold(part)
            return
        key, weak = id(part), self._weak
        weak[key] = weakref.ref(part, lambda _: weak.pop(key, None))

    def remove(self, part: ClientPart) -> None:
        """Remove a part that was closed by itself, or is at its end."""
        self._held.pop(part, None)
        self._weak.pop(id(part), None)

    def clear(self) -> list[ClientPart]:
        """Forget all parts, and return them."""
        found = [*self._held, *(part for ref in list(self._weak.values()) if (part := ref()) is not None)]
        self._held.clear()
        self._weak.clear()
        return found

    def forked(self, error: Invalid) -> None:
        """This is a child process."""
        for hooks in self._held.values():
            if hooks.forked is not None:
                hooks.forked(error)

    def unacknowledged(self) -> list[Unacknowledged]:
        """Return what the writers would lose if the process ended now."""
        found = [hooks.unacknowledged() for hooks in list(self._held.values()) if hooks.unacknowledged is not None]
        return [one for one in found if one.amount]


def dropped(session: Owner, what: str, release: Callable[[], object]) -> None:
    """Call `release` on the loop for a reader that was garbage-collected.  For `weakref.finalize`, on any thread."""
    if session.ended:
        return
    warn_user(f"{what} was dropped and not closed: close it, or use it as a block")
    with suppress(RuntimeError):  # the loop was closed
        session.loop.call_soon_threadsafe(release)


def watch(part: Any, session: Owner, what: str, release: Callable[[], object]) -> Callable[[], object]:
    """Have `release`, which must not refer to `part`, called when `part` is garbage-collected.

    Returns a function that ends the watch, to be called when `part` is closed."""
    if session.parts.holds_readers:
        return _nothing
    watching = weakref.finalize(part, dropped, session, what, release)
    watching.atexit = False
    return watching.detach


def _nothing() -> None:
    """Do nothing, where no watch has to be ended."""


def weakly(method: Callable[P, Any], otherwise: Any = None) -> Callable[P, Any]:
    """Return a bound method that does not keep its object; `otherwise`: the result once that is gone."""
    found = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        bound = found()
        return otherwise if bound is None else bound(*args, **kwargs)

    return call
