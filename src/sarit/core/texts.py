"""Texts that somebody else has chosen, cut to a bounded length.  Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def cut_text(text: str, most: int, width: Callable[[str], int] | None = None) -> str:
    """Return the text, or its beginning and how many characters follow: at most `most` characters in all.

    `width`: how much of `most` a character takes, at least 1, where it is not 1."""
    if len(text) <= most and (width is None or sum(map(width, text)) <= most):
        return text
    kept = most - len(f"... ({len(text)} characters more)")
    if width is not None:
        kept = bisect_right(list(accumulate(map(width, text[:kept]))), kept)
    return f"{text[:kept]}... ({len(text) - kept} characters more)"
