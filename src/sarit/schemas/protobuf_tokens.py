"""Tokens of .proto source: names, numbers, strings and symbols, without spaces and comments.  Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_PROTOBUF_LEVELS, MAX_PROTOBUF_NAME, MAX_PROTOBUF_TOKENS
from sarit.schemas.schema_text import shown

NAME, INTEGER, FLOAT, STRING, SYMBOL, END = range(1, 7)  # kinds of tokens: groups of _TOKEN, and the end of the text
_SPACE: Final = re.compile(r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_TOKEN: Final = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*+)"
    r"|(0[xX][0-9A-Fa-f]++(?![\w.])|[0-9]++(?![\w.]))"
    r"|((?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fF]?(?![\w.])|[0-9]++[eE][+-]?[0-9]++[fF]?(?![\w.]))"
    r"""|("(?:[^"\\\n\0]|\\[^\n\0])*+"|'(?:[^'\\\n\0]|\\[^\n\0])*+')"""
    r"|([{}\[\]()<>;:=,.+-]|/(?![*/]))"
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([abfnrtv\\'\"?])|([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL
)
_ESCAPED: Final = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_MAX_DIGITS: Final = 22  # of 64 bits in octal


class Token(NamedTuple):
    """A token of a kind, and the index of its first character."""

    kind: int
    text: str
    offset: int


class TokenReader:
    """The tokens of a text, and how far they are read."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._tokens = tokens_of(text, what)
        self._at = 0
        self._levels = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    @property
    def after_next(self) -> Token:
        """The token after the next: the end of the text has itself."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def skip(self, count: int) -> None:
        """Go on behind some tokens, which are there."""
        self._at += count

    def back(self) -> None:
        """Go back by one token, for an error that names its place."""
        self._at -= 1

    def take(self) -> Token:
        """Return the next token, and go on behind it."""
        found = self._tokens[self._at]
        if found.kind != END:
            self._at += 1
        return found

    def accept(self, text: str) -> bool:
        """Go on behind a name or symbol if it is next.  Returns whether it was."""
        if self._tokens[self._at].text == text:
            self._at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Go on behind a name or symbol.  Raises Invalid if another is next."""
        if not self.accept(text):
            raise self.wrong(f"{self.shown_next()} stands where {text} was expected")

    def name(self) -> str:
        """Return the next token, a name."""
        if self.next.kind != NAME:
            raise self.wrong(f"{self.shown_next()} stands where a name was expected")
        return self.take().text

    def full_name(self, *, dotted: bool = False) -> str:
        """Return names with dots between them.  `dotted`: may begin with a dot."""
        parts = ["."] if dotted and self.accept(".") else []
        parts.append(self.name())
        while self.accept("."):
            parts += (".", self.name())
        return "".join(parts)

    def number(self, most: int, *, least: int = 0) -> int:
        """Return the next token, an integer within bounds; with a sign if `least` is negative."""
        negative = least < 0 and self.accept("-")
        found = integer(self.next.text) if self.next.kind == INTEGER else None
        value = -found if negative and found is not None else found
        if value is None or not least <= value <= most:
            raise self.wrong(f"{self.shown_next()} stands where an integer of {least} to {most} was expected")
        self.take()
        return value

    def string(self) -> bytes:
        """Return the bytes of the next strings: several in a row are one."""
        if self.next.kind != STRING:
            raise self.wrong(f"{self.shown_next()} stands where a string was expected")
        parts = []
        while self.next.kind == STRING:
            try:
                parts.append(string_bytes(self.next.text))
            except ValueError:
                raise self.wrong("a string has an escape that does not exist") from None
            self.take()
        return b"".join(parts)

    def utf8(self) -> str:
        """Return the text of the next strings."""
        before = self._at
        try:
            return self.string().decode()
        except UnicodeDecodeError:
            self._at = before
            raise self.wrong("a string is no UTF-8") from None

    def wrong(self, why: str, offset: int = -1) -> Invalid:
        """Return the error for the next token, or for that at an offset."""
        return Invalid(f"{self._what}, {place(self._text, self.next.offset if offset < 0 else offset)}: {why}")

    def enter(self) -> None:
        """Begin a message within another.  Raises Invalid for too many levels."""
        self._levels += 1
        if self._levels > MAX_PROTOBUF_LEVELS:
            raise self.wrong(f"more than {MAX_PROTOBUF_LEVELS} messages are within each other")

    def leave(self) -> None:
        """End a message within another."""
        self._levels -= 1

    def shown_next(self) -> str:
        """Return the next token as errors show it."""
        return shown(self.next.text) if self.next.kind != END else "the end of the text"


def tokens_of(text: str, what: str) -> list[Token]:
    """Return the tokens of a text, with an END after the last.  Raises Invalid, which names the text as `what`."""
    found: list[Token] = []
    offset = 1 if text.startswith("\ufeff") else 0
    skip, match, length = _SPACE.match, _TOKEN.match, len(text)
    while True:
        spaces = skip(text, offset)
        assert spaces, "no space matches, too"
        offset = spaces.end()
        if offset >= length:
            break
        one = match(text, offset)
        if one is None:
            raise Invalid(f"{what}, {place(text, offset)}: {_unknown(text, offset)}")
        if len(found) >= MAX_PROTOBUF_TOKENS:
            raise Invalid(f"{what} has more than {MAX_PROTOBUF_TOKENS:,} names, numbers and symbols")
        if one.lastindex == NAME and one.end() - offset > MAX_PROTOBUF_NAME:
            raise Invalid(f"{what}, {place(text, offset)}: a name has at most {MAX_PROTOBUF_NAME} characters")
        found.append(Token(one.lastindex or 0, one.group(), offset))
        offset = one.end()
    found.append(Token(END, "", length))
    return found


def place(text: str, offset: int) -> str:
    """Return the line and column of a character, as errors name them."""
    return f"line {text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"


def integer(text: str) -> int | None:
    """Return the value of a token INTEGER: decimal, octal after 0, or hexadecimal; None if none or too large."""
    if len(text) > _MAX_DIGITS + 1:
        return None
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    try:
        return int(text, 8 if len(text) > 1 and text[0] == "0" else 10)
    except ValueError:  # 8 or 9 in an octal number
        return None


def string_bytes(text: str) -> bytes:
    """Return the bytes that a token STRING stands for.  Raises ValueError for an escape that does not exist."""
    inner = text[1:-1].encode()
    return _ESCAPE.sub(_unescaped, inner) if b"\\" in inner else inner


def quoted(value: bytes) -> str:
    """Return bytes as a string of .proto source, in ASCII."""
    return f'"{escaped(value)}"'


def escaped(value: bytes) -> str:
    """Return bytes in ASCII, as protoc writes the default of a field of bytes."""
    return "".join(_WRITTEN[one] for one in value)


def _unescaped(match: re.Match[bytes]) -> bytes:
    simple, octal, hexadecimal, short, long, wrong = match.groups()
    if wrong is not None:
        raise ValueError("an escape that does not exist")
    if simple:
        return _ESCAPED.get(simple, simple)
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])
    return chr(int(short or long, 16)).encode()  # a ValueError for what is no character, as a half of a pair


def _unknown(text: str, offset: int) -> str:
    if text[offset] in "\"'":
        return "a string has no end on its line, or an escape without a character"
    if text.startswith("/*", offset):
        return "a comment has no end"
    if text[offset].isdigit():
        return "a number is malformed, or a name follows it without a space"
    return f"{shown(text[offset])} begins no name, number, string or symbol"


def _written(one: int) -> str:
    known = {9: r"\t", 10: r"\n", 13: r"\r", 34: r"\"", 39: r"\'", 92: r"\\"}
    return known.get(one) or (chr(one) if 32 <= one < 127 else f"\\{one:03o}")


_WRITTEN: Final = tuple(map(_written, range(256)))
