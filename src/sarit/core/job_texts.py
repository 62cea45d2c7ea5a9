"""The progress of a background job as texts by name, in which a server shows it, read by clients.

What is missing or damaged is not known: a client of another version shows the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.core.cuts import StreamCut

_MAX_DIGITS: Final = 19


def numbers_of(texts: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    """Return numbers by their names, in which texts have `-` for `_`; 0 for one that is not known."""
    return {name: _number(texts.get(name.replace("_", "-"), "")) for name in names}


def cut_of(texts: Mapping[str, str]) -> StreamCut | None:
    """Return the cut up to which a job has come; None: it is not known."""
    try:
        return cuts.from_text(texts["cut"]) if "cut" in texts else None
    except Invalid:
        return None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else 0
