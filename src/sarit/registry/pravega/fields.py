"""Fields of JSON objects from outside, each read with its type and its bounds.  Pure.

As in Pravega: a field that nobody knows is ignored, and one that is null is absent.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from sarit.core.errors import Invalid
from sarit.core.texts import cut_text

BODY: Final = "the body"
_SHOWN_CHARS: Final = 80
_MOST: Final = (1 << 31) - 1  # Java's int


class Fields:
    """A JSON object that a request has at some place."""

    def __init__(self, value: Any, at: str = BODY) -> None:
        """`at`: the place, for errors.  Raises Invalid: it is no object."""
        if not isinstance(value, dict):
            raise Invalid(f"{at} is {shown(value)}: give an object")
        self._value = value
        self._at = at

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def __repr__(self) -> str:
        return f"<Fields of {self._at}>"

    def object(self, name: str) -> Fields:
        """Return a field that is an object.  Raises Invalid."""
        return Fields(self._needed(name), self._place(name))

    def text(self, name: str) -> str:
        """Return a field that is a text.  Raises Invalid."""
        found = self._needed(name)
        if not isinstance(found, str):
            raise Invalid(f"{self._place(name)} is {shown(found)}: give a text")
        return found

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """Return a field that is one of some texts.  Raises Invalid."""
        found = self.text(name)
        if found not in choices:
            raise Invalid(f"{self._place(name)} is {shown(found)}: give one of {', '.join(choices)}")
        return found

    def flag(self, name: str) -> bool:
        """Return a field that is true or false.  Raises Invalid."""
        found = self._needed(name)
        if not isinstance(found, bool):
            raise Invalid(f"{self._place(name)} is {shown(found)}: give true or false")
        return found

    def number(self, name: str) -> int:
        """Return a field that is a whole number from 0 on.  Raises Invalid."""
        found = self._needed(name)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _MOST:
            raise Invalid(f"{self._place(name)} is {shown(found)}: give a whole number, 0 or more")
        return found

    def data(self, name: str) -> bytes:
        """Return the bytes of a field that is base64.  Raises Invalid."""
        found = self.text(name)
        try:
            return base64.b64decode(found.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise Invalid(f"{self._place(name)} is {shown(found)}: give base64") from None

    def properties(self, name: str) -> dict[str, str]:
        """Return a field that is a map of texts; an empty map if it is absent.  Raises Invalid."""
        if name not in self:
            return {}
        made = self.object(name)
        return {key: made.text(key) for key in made._value}

    def _needed(self, name: str) -> Any:
        if name not in self:
            raise Invalid(f"{self._place(name)} is missing")
        return self._value[name]

    def _place(self, name: str) -> str:
        plain = ascii(name[:_SHOWN_CHARS])[1:-1]
        return plain if self._at == BODY else cut_text(f"{self._at}.{plain}", _SHOWN_CHARS)


def shown(value: Any) -> str:
    """Return a value of a request as an error shows it: in ASCII, and short."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return cut_text(ascii(value[:_SHOWN_CHARS] if isinstance(value, str) else value), _SHOWN_CHARS)
