"""The reply of a store for damaged bytes, and how a client recognizes it.

The protocol has no reply for damage.  Closing the connection, as for other errors without a reply, would make clients
repeat the request for minutes, and disturb all other requests on the connection.  So the store sends a reply after
which a client neither repeats the request nor loses data (docs/decisions/0318):

- The Java client repeats a read for 100 s after all failures except three.  Two of these mean "truncated": the client
  would silently skip data.  The third is AuthTokenCheckFailed, which raises an exception with the reply's text.
- The Rust client, and with it the official Python client, repeats only after WrongHost.  After ErrorMessage it stops
  reading the segment and logs an error.  After AuthTokenCheckFailed it would report an expired token.
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
    """Return the reply that stored bytes are damaged, for a client whose Hello had the version `hello_version`."""
    if hello_version <= RUST_WIRE_VERSION:
        return ErrorMessage(request_id, segment, _PREFIX + text, _UNSPECIFIED)
    return AuthTokenCheckFailed(request_id, _PREFIX + text, _CHECK_FAILED)


def damage_in(reply: object) -> str | None:
    """Return the text of a reply that stored bytes are damaged; None: it is another reply."""
    text = ""
    if isinstance(reply, ErrorMessage):
        text = reply.message
    elif isinstance(reply, AuthTokenCheckFailed):
        text = reply.stack
    return text.removeprefix(_PREFIX) if text.startswith(_PREFIX) else None
