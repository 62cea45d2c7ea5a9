"""Which requests a store serves: each must carry a token that gives its permission on its segments.

A token is verified once on a connection; later requests with it cost a look-up.  A writer is checked when it is set up,
as Pravega does it, and its connection ends when the token expires: the client comes back with a new one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.core.names import parent_segment
from sarit.security.limits import MAX_TOKEN_BYTES, MAX_VERIFIED_TOKENS
from sarit.security.permissions import Permission, stream_resource
from sarit.security.tokens import Grant, TokenRefused
from sarit.wire import commands as wire
from sarit.wire.commands import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sarit.env.ports import Clock
    from sarit.security.audit import Audit
    from sarit.security.tokens import TokenKeys

TOKEN_EXPIRED: Final = 1
_REFUSED: Final = 0


def _segment(command: Any) -> Sequence[str]:
    return (command.segment,)


# Which segments a request is about, and what it needs.  Requests without a token are not here: the blocks of a writer
# that was set up, KeepAlive, Hello, and the commands of controllers, whose connections introduce themselves.
NEEDS: Final[Mapping[type[wire.Command], tuple[Permission, Callable[[Any], Sequence[str]]]]] = {
    wire.SetupAppend: (Permission.READ_UPDATE, _segment),
    wire.CreateTransientSegment: (Permission.READ_UPDATE, lambda c: (c.parent_segment,)),
    wire.CreateSegment: (Permission.READ_UPDATE, _segment),
    wire.UpdateSegmentAttribute: (Permission.READ_UPDATE, _segment),
    wire.SealSegment: (Permission.READ_UPDATE, _segment),
    wire.TruncateSegment: (Permission.READ_UPDATE, _segment),
    wire.DeleteSegment: (Permission.READ_UPDATE, _segment),
    wire.UpdateSegmentPolicy: (Permission.READ_UPDATE, _segment),
    wire.MergeSegments: (Permission.READ_UPDATE, lambda c: (c.target, c.source)),
    wire.MergeSegmentsBatch: (Permission.READ_UPDATE, lambda c: (c.target, *c.sources)),
    wire.CreateTableSegment: (Permission.READ_UPDATE, _segment),
    wire.DeleteTableSegment: (Permission.READ_UPDATE, _segment),
    wire.UpdateTableEntries: (Permission.READ_UPDATE, _segment),
    wire.RemoveTableKeys: (Permission.READ_UPDATE, _segment),
    wire.ReadSegment: (Permission.READ, _segment),
    wire.GetStreamSegmentInfo: (Permission.READ, _segment),
    wire.GetSegmentAttribute: (Permission.READ, _segment),
    wire.LocateOffset: (Permission.READ, _segment),
    wire.GetTableSegmentInfo: (Permission.READ, _segment),
    wire.ReadTable: (Permission.READ, _segment),
    wire.ReadTableKeys: (Permission.READ, _segment),
    wire.ReadTableEntries: (Permission.READ, _segment),
    wire.ReadTableEntriesDelta: (Permission.READ, _segment),
}


class Connection(Protocol):
    """What is needed of a connection."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def close(self) -> None:
        """Send what is queued and end."""


class TokenChecks:
    """The tokens of one connection."""

    __slots__ = ("_audit", "_clock", "_expiry", "_keys", "_peer", "_verified", "user")

    def __init__(self, keys: Callable[[], TokenKeys], clock: Clock, audit: Audit, peer: str) -> None:
        self._keys = keys
        self._clock = clock
        self._audit = audit
        self._peer = peer
        self.user = ""  # the first that a token named
        self._verified: dict[str, Grant] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<TokenChecks, {len(self._verified)} verified>"

    def refusal(self, command: wire.Command) -> wire.Command | None:
        """The reply to a request that its token does not allow; None: serve it.

        Controllers' connections and what carries no token are not asked."""
        need = NEEDS.get(type(command))
        if need is None:
            return None
        permission, segments = need
        who = ""
        try:
            grant = self._grant(command.token)  # type: ignore[attr-defined]
            who = grant.user
            for segment in segments(command):
                resource = resource_of(segment)
                if not grant.allows(resource, permission):
                    raise TokenRefused(f"the token does not give {permission.name} on {resource}")
        except TokenRefused as error:
            what = type(command).__name__
            self._audit.note(
                who=who, what=what, resource=segments(command)[0], peer=self._peer, allowed=False, why=str(error)
            )
            code = TOKEN_EXPIRED if error.expired else _REFUSED
            return wire.AuthTokenCheckFailed(command.request_id, str(error), code)  # type: ignore[attr-defined]
        return None

    def admit(self, command: wire.Command, connection: Connection) -> bool:
        """Whether a request of `connection` has a token that allows it; if not, it is answered."""
        refused = self.refusal(command)
        if refused is None:
            if isinstance(command, wire.SetupAppend):
                self._end_with(command.token, connection)
            return True
        connection.send(encode(refused))
        if isinstance(refused, wire.AuthTokenCheckFailed) and refused.error_code == TOKEN_EXPIRED:
            connection.close()  # without a word in the log: every client meets it
        return False

    def expires(self, token: str) -> float:
        """When a token that was accepted expires, in seconds since 1970; 0: it was forgotten."""
        grant = self._verified.get(token)
        return 0.0 if grant is None else grant.expires

    def connection_closed(self) -> None:
        """No token expires any more."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _end_with(self, token: str, connection: Connection) -> None:
        """End the connection when the token expires, unless another one does earlier: blocks carry none."""
        loop = asyncio.get_running_loop()
        at = loop.time() + self._verified[token].expires - self._clock.wall_ms() / 1000
        if self._expiry is None or at < self._expiry.when():
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = loop.call_at(at, connection.close)

    def _grant(self, token: str) -> Grant:
        now = self._clock.wall_ms() / 1000
        grant = self._verified.get(token)
        if grant is None:
            if not token:
                raise TokenRefused("the request has no token: log in at the controller")
            if len(token) > MAX_TOKEN_BYTES:
                raise TokenRefused(f"the token has more than {MAX_TOKEN_BYTES} characters")
            grant = self._keys().verify(token, now)
            if len(self._verified) >= MAX_VERIFIED_TOKENS:
                del self._verified[next(iter(self._verified))]
            self._verified[token] = grant
            self.user = self.user or grant.user
        if grant.expires <= now:
            del self._verified[token]
            raise TokenRefused("the token has expired", expired=True)
        return grant


def resource_of(segment: str) -> str:
    """The stream of a segment, transactions and transient segments of it included, as a token names it."""
    parts = parent_segment(segment).split("/")
    if len(parts) == 3:
        return stream_resource(parts[0], parts[1])
    # The controller's own tables, and names that no stream has: only a token for all of them opens these.
    return f"prn::/segment:{segment}"
