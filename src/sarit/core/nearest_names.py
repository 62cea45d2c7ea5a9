"""The part of an error about an unknown name that says which names there are.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_NAMED: Final = 5


def nearest(name: str, names: Collection[str]) -> str:
    """Return in words which names there are: all of a few, or those that are most like `name`; at least one."""
    if len(names) <= MAX_NAMED:
        return f"there is {' and '.join(names)}" if len(names) == 1 else f"there are {', '.join(sorted(names))}"
    from difflib import SequenceMatcher

    like = sorted(names, key=lambda each: (-SequenceMatcher(None, each, name).ratio(), each))[:MAX_NAMED]
    return f"there are {', '.join(like)} and {len(names) - MAX_NAMED:,} more"
