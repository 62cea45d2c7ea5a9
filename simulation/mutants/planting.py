"""How a wrong function takes the place of a right one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def planted(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    """`owner.name` is `wrong` for a while."""
    right = owner.__dict__[name]
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)
