"""The part of an error about an unknown name that says which names there are.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_NAMED: Final = 5
# Of each name: to compare two takes the product of their lengths, and some are chosen by strangers.
_COMPARED_CHARACTERS: Final = 40


def nearest(name: str, names: Collection[str]) -> str:
    """Return in words which names there are: all of a few, or those that are most like `name`; at least one."""
    if len(names) <= MAX_NAMED:
        return f"there is {' and '.join(names)}" if len(names) == 1 else f"there are {', '.join(sorted(names))}"
    from difflib import SequenceMatcher

    def unlike(each: str) -> tuple[float, str]:
        compared = SequenceMatcher(None, each[:_COMPARED_CHARACTERS], name[:_COMPARED_CHARACTERS])
        return -compared.ratio(), each

    like = sorted(names, key=unlike)[:MAX_NAMED]
    return f"there are {', '.join(like)} and {len(names) - MAX_NAMED:,} more"
