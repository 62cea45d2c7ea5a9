"""Java's modified UTF-8: UTF-8, but NUL is c0 80 and a character above U+FFFF is a surrogate pair of 3 bytes each.

Source: java.io.DataInput, "Modified UTF-8".  Used by the wire protocol and by Java's serialized objects, always
behind a uint16 byte length.  The Rust client writes plain UTF-8 there; the reader takes both, which never clash.
Half a surrogate pair is refused both ways: nothing behind us could store such a string.
"""

from __future__ import annotations

from sarit.core.errors import Invalid


def encode_java(text: str) -> bytes:
    """Modified UTF-8, without a length.  Raises Invalid for half a surrogate pair."""
    if text.isascii():  # nearly all are
        return text.encode().replace(b"\0", b"\xc0\x80")
    try:
        raw = text.encode()
        if max(text) > "\uffff":
            units = text.encode("utf-16-be")
            halves = (chr(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2))
            raw = "".join(halves).encode("utf-8", "surrogatepass")
    except UnicodeEncodeError as error:
        raise Invalid(f"not a string: {error}") from None
    return raw.replace(b"\0", b"\xc0\x80") if "\0" in text else raw


def decode_java(raw: bytes) -> str:
    """The inverse; takes plain UTF-8 too.  Raises Invalid."""
    try:
        if raw.isascii():
            return raw.decode("ascii")
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise Invalid(f"a string is not UTF-8: {error}") from None
