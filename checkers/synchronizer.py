"""A state that several processes share, as a model for the search of `register.py`.  Pure.

The state is a chained hash over all updates in the order they were applied: of constant size, yet two copies are equal
only if they applied the same updates in the same order.  So three properties become one search for an order of the
calls: all processes apply the same updates in the same order, each condition has one winner, and compaction changes
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from checkers.register import IMPOSSIBLE, NOTHING, UNKNOWN, chained

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


def after(state: bytes, updates: Iterable[bytes]) -> bytes:
    """The state that some updates make of another."""
    for update in updates:
        state = chained(state, update)
    return state


class SharedState:
    """("update", state it was computed from, updates) -> True;  ("push", updates) -> True: unconditional;

    ("get",) -> the state."""

    first: Hashable = NOTHING
    DONE: Final = True

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        if action[0] == "get":
            return state if answer in (UNKNOWN, state) else IMPOSSIBLE
        if action[0] == "push":
            return after(state, action[1])
        if action[1] != state:
            return state if answer is UNKNOWN else IMPOSSIBLE
        return after(state, action[2])
