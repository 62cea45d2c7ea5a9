"""How a store says that bytes are damaged, and how a client understands it.  Pure.

The protocol has no reply for that.  Closing the connection, as for errors without a reply, makes clients repeat the
request for minutes, and disturbs all others on the connection.  So the reply is one that a client neither repeats nor
takes for something else (docs/decisions/0318):

- The Java client repeats a read for 100 s after any failure but three.  Two of them mean "truncated": it would go on
  elsewhere, and data would be lost without a word.  The third is AuthTokenCheckFailed: an exception, at once, with the
  text of the reply.
- The Rust client, and with it the official Python client, repeats only WrongHost.  ErrorMessage ends its reading of
  that segment, with an error in its log.  To AuthTokenCheckFailed it would say that a token has expired.
"""

from __future__ import annotations

from typing import Final

from sarit.wire.commands import AuthTokenCheckFailed, Command, ErrorMessage

RUST_WIRE_VERSION: Final = 15
"""The highest version in the Hello of the Rust client; others say more."""

_PREFIX: Final = "damaged: "
_UNSPECIFIED: Final = -1
_CHECK_FAILED: Final = 0


def damage_reply(request_id: int, segment: str, text: str, hello_version: int = RUST_WIRE_VERSION) -> Command:
    """Return the reply to a client that said `hello_version`: stored bytes that its request needs are damaged."""
    if hello_version <= RUST_WIRE_VERSION:
        return ErrorMessage(request_id, segment, _PREFIX + text, _UNSPECIFIED)
    return AuthTokenCheckFailed(request_id, _PREFIX + text, _CHECK_FAILED)


def damage_in(reply: object) -> str | None:
    """Return the text of such a reply; None for any other."""
    text = ""
    if isinstance(reply, ErrorMessage):
        text = reply.message
    elif isinstance(reply, AuthTokenCheckFailed):
        text = reply.stack
    return text.removeprefix(_PREFIX) if text.startswith(_PREFIX) else None
