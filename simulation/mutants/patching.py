"""How a wrong function takes the place of the right one."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def patched(owner: Any, right: Any, wrong: Any) -> Iterator[None]:
    """Replace a function or property of a class or module for the length of a `with`.

    `right` is the function itself, not its name: the type checker sees when it is renamed.  Raises TypeError when
    `wrong` does not take the arguments of `right`: such a mutant would be caught by that alone."""
    name = getattr(right, "fget", right).__name__
    assert owner.__dict__[name] is right, f"{name} is not defined in {owner!r}"
    _check_signature(right, wrong)
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)


def _check_signature(right: Any, wrong: Any) -> None:
    if inspect.isfunction(right) and inspect.isfunction(wrong):
        taken = inspect.signature(right).parameters.values()
        by_place = [one.name for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        inspect.signature(wrong).bind(*by_place, **{one.name: None for one in taken if one.kind is one.KEYWORD_ONLY})
