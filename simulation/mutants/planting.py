"""How a wrong function takes the place of a right one."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def planted(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    """`owner.name` is `wrong` for a while.  Raises TypeError when `wrong` does not take what the right one takes: such
    a bug would be caught by that."""
    right = owner.__dict__[name]
    _check_fit(right, wrong)
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)


def _check_fit(right: Any, wrong: Any) -> None:
    if inspect.isfunction(right) and inspect.isfunction(wrong):
        taken = inspect.signature(right).parameters.values()
        by_place = [one.name for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        inspect.signature(wrong).bind(*by_place, **{one.name: None for one in taken if one.kind is one.KEYWORD_ONLY})
