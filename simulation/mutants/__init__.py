"""Bugs planted by name: the simulation must find each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

MUTANTS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {}
