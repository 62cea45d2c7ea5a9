"""The registry of mutants: name, broken invariant, a sentence on the fault, and how to apply it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Mutant:
    """`apply()` replaces the right function by the wrong one for the length of a `with`.

    `found_by`: the test that finds it, where few seeds reach the moment at which it does harm.  `stores`: how many the
    seeds have that find it; 0: one node.  `on_bookies`: all these seeds have their log on BookKeeper."""

    name: str
    invariant: str
    fault: str
    apply: Callable[[], AbstractContextManager[None]]
    found_by: str = ""
    stores: int = 0
    on_bookies: bool = False


_all: dict[str, Mutant] = {}


def mutant(
    invariant: str,
    found_by: str = "",
    stores: int = 0,
    *,
    on_bookies: bool = False,
) -> Callable[[Callable[[], AbstractContextManager[None]]], Callable[[], AbstractContextManager[None]]]:
    """Register a context manager; its name and docstring are the mutant's."""

    def register(apply: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
        name = apply.__name__.replace("_", "-")
        assert name not in _all, name
        _all[name] = Mutant(
            name,
            invariant,
            " ".join((apply.__doc__ or "").split()).removesuffix("."),
            apply,
            found_by,
            stores,
            on_bookies,
        )
        return apply

    return register


def registered() -> dict[str, Mutant]:
    """All mutants, in the order of registration."""
    return _all
