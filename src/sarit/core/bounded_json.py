"""JSON from untrusted sources, parsed within bounds of depth and of memory.

`json.loads` raises RecursionError for many levels, which few callers expect, and makes 70 bytes of each `{},` of a
document: 64 MiB of them take more than a gigabyte.  Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from sarit.core.errors import Invalid

# Strings, commas and brackets of one document.  An envelope with all the headers that it may have has 460,000.
MAX_JSON_TOKENS: Final = 1_000_000

_TOKENS: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{,]'
_IN_TEXT: Final = re.compile(_TOKENS, re.DOTALL)
_IN_BYTES: Final = re.compile(_TOKENS.encode(), re.DOTALL)


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Parse a document as `json.loads` does.  Raises ValueError also for one with too many levels or values."""
    check_tokens(text)
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("it has too many levels of arrays and objects") from None


def check_tokens(text: str | bytes) -> None:
    """Raise ValueError for a document with too many values, before it is parsed."""
    if len(text) > MAX_JSON_TOKENS and _has_too_many(text):
        raise ValueError(f"it has more than {MAX_JSON_TOKENS:,} values")


def _has_too_many(text: str | bytes) -> bool:
    found = _IN_TEXT.finditer(text) if isinstance(text, str) else _IN_BYTES.finditer(text)
    return any(count >= MAX_JSON_TOKENS for count, _ in enumerate(found))


def read_json(raw: bytes) -> Any:
    """Return the value of a body in JSON.  Raises Invalid, with the place of the mistake.

    Fields that are there twice, NaN and halves of surrogate pairs are mistakes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"the body is not UTF-8: byte {error.start} is wrong") from None
    if not text.strip():
        raise Invalid("the body is empty: send a JSON object")
    try:
        found = parse_json(text, object_pairs_hook=_object, parse_constant=_constant)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError:
        raise Invalid("the body has half a surrogate pair, which is no character") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"the body is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except ValueError as error:  # nested too deeply; a number of thousands of digits
        raise Invalid(f"the body is not JSON that anybody needs: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise Invalid(f"the body has a field twice: {next(name for name in names if names.count(name) > 1)!r}")
    return found


def _constant(name: str) -> NoReturn:
    raise Invalid(f"the body is not JSON: {name} is no number there")
