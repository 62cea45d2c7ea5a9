"""What a planted bug is: its name, the invariant it breaks, what is wrong in a sentence, and how to plant it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Mutant:
    """`plant()` puts the wrong function in the place of the right one for the length of a `with`.

    `found_by`: the test that finds it, where seeds seldom come to the one moment at which it does harm."""

    name: str
    invariant: str
    wrong: str
    apply: Callable[[], AbstractContextManager[None]]
    found_by: str = ""


_all: dict[str, Mutant] = {}


def mutant(
    invariant: str,
    found_by: str = "",
) -> Callable[[Callable[[], AbstractContextManager[None]]], Callable[[], AbstractContextManager[None]]]:
    """Register a context manager; its name and docstring are the mutant's."""

    def register(plant: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
        name = plant.__name__.replace("_", "-")
        assert name not in _all, name
        _all[name] = Mutant(name, invariant, (plant.__doc__ or "").strip().removesuffix("."), plant, found_by)
        return plant

    return register


def registered() -> dict[str, Mutant]:
    """All mutants, in the order they were registered."""
    return _all
