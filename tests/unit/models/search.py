"""Breadth-first search through all states of a small model.

A model is a first state (hashable), the possible next steps, and the invariants of every state.  Where no step is left,
the work must be done: a stuck state is as wrong as a broken invariant.  The first wrong state found is reported with
the shortest path to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

S = TypeVar("S", bound="Hashable")
S_contra = TypeVar("S_contra", contravariant=True)


class Model(Protocol[S]):
    """The model to search."""

    def first(self) -> S:
        """The first state."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """The possible next steps, by name."""

    def wrong(self, state: S) -> str:
        """The broken invariant; empty when all hold."""

    def unfinished(self, state: S) -> str:
        """The work left in a state without steps; empty when it is done."""


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """`broken`: the first violation, and `way`: the steps to it."""

    states: int
    broken: str
    way: tuple[str, ...] = ()
    state: S | None = None

    def __str__(self) -> str:
        return "\n".join([f"{self.states} states; {self.broken or 'nothing is wrong'}", *self.way, str(self.state)])


def search(model: Model[S], most: int = 2_000_000) -> Found[S]:
    """All states, or the first wrong one.  Raises OverflowError when there are more than `most`."""
    first = model.first()
    came: dict[S, tuple[S, str] | None] = {first: None}
    waiting = [first]
    while waiting:
        coming: list[S] = []
        for state in waiting:
            alone = True
            broken = model.wrong(state)
            if not broken:
                for name, after in model.steps(state):
                    alone = False
                    if after not in came:
                        came[after] = (state, name)
                        coming.append(after)
                if alone:
                    broken = model.unfinished(state)
            if broken:
                return Found(len(came), broken, _way(came, state), state)
        if len(came) > most:
            raise OverflowError(f"more than {most} states")
        waiting = coming
    return Found(len(came), "")


def _way(came: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    names: list[str] = []
    at = came[state]
    while at is not None:
        names.append(at[1])
        at = came[at[0]]
    return tuple(reversed(names))
