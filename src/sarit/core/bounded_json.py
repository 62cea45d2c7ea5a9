"""JSON from untrusted sources, parsed within bounds of depth and of memory.

`json.loads` raises RecursionError for many levels, which few callers expect, and makes 70 bytes of each `{},` of a
document: 64 MiB of them take more than a gigabyte.  Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

# Strings, commas and brackets of one document.  An envelope with all the headers that it may have has 460,000.
MAX_JSON_TOKENS: Final = 1_000_000

_TOKENS: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{,]'
_IN_TEXT: Final = re.compile(_TOKENS, re.DOTALL)
_IN_BYTES: Final = re.compile(_TOKENS.encode(), re.DOTALL)


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Parse a document as `json.loads` does.  Raises ValueError also for one with too many levels or values."""
    if len(text) > MAX_JSON_TOKENS and _has_too_many(text):
        raise ValueError(f"it has more than {MAX_JSON_TOKENS:,} values")
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("it has too many levels of arrays and objects") from None


def _has_too_many(text: str | bytes) -> bool:
    found = _IN_TEXT.finditer(text) if isinstance(text, str) else _IN_BYTES.finditer(text)
    return any(count >= MAX_JSON_TOKENS for count, _ in enumerate(found))
