"""The names that users import from `sarit`."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def public(made: type[T]) -> type[T]:
    """Mark a class as one that users import as `sarit.NAME`: error messages, pickles and `help` name it so."""
    made.__module__ = "sarit"
    return made
