"""The bytes of links and of their status, as they are stored (docs/formats/links.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Corrupt, Invalid
from sarit.core.links import (
    HoldOverflow,
    Link,
    LinkDirection,
    LinkRole,
    LinkSettings,
    LinkState,
    LinkStatus,
    StreamProblem,
)
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_signed, pack_text
from sarit.mirror.limits import LINK_ID_BYTES, MAX_LINK_NOTE_CHARACTERS, MAX_LINK_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

_FORMAT: Final = 1
_DIRECTIONS: Final = (LinkDirection.PUSH, LinkDirection.PULL)
_ROLES: Final = (LinkRole.ACTIVE, LinkRole.PASSIVE)
_STATES: Final = (LinkState.ACTIVE, LinkState.PAUSED, LinkState.DRAINING, LinkState.PROMOTED)
_OVERFLOWS: Final = (HoldOverflow.THROTTLE, HoldOverflow.DROP)
_FLAGS: Final = ("follow_truncation", "tables", "registry", "groups", "restart", "discard_divergent")
_THOUSAND: Final = 1000


def encode_link(link: Link) -> bytes:
    """Encode the row of a link, without its name and version."""
    head = bytes((_FORMAT, _ROLES.index(link.role), _STATES.index(link.state)))
    peer = pack_text(link.peer_installation)
    return b"".join((head, link.link_id, pack_long(link.created_ms), peer, _encode_settings(link.settings)))


def decode_link(name: str, data: bytes, version: int) -> Link:
    """Decode the row of a link.  Raises Corrupt."""

    def read(c: Cursor) -> Link:
        role, state, link_id = _ROLES[c.number(1)], _STATES[c.number(1)], c.take(LINK_ID_BYTES)
        created_ms, peer = c.compact_long(), c.text()
        return Link(name, link_id, created_ms, role, state, _decode_settings(c), peer, version)

    return _decode(f"the record of link {name}", data, read)


def encode_status(status: LinkStatus) -> bytes:
    """Encode how far a link is: the state of its job.  More problems, or longer texts, than bounds allow are cut."""
    problems = status.problems[:MAX_LINK_PROBLEMS]
    return b"".join(
        (
            bytes((_FORMAT, status.up | status.compressed << 1)),
            pack_long(status.contact_ms),
            pack_int(status.streams),
            pack_long(status.lag_bytes),
            pack_long(int(status.lag_seconds * _THOUSAND)),
            pack_long(status.copied_bytes),
            pack_long(status.lost_bytes),
            pack_signed(status.clock_skew_ms),
            pack_int(status.failing),
            pack_text(_bounded(status.note)),
            pack_int(len(problems)),
            *(pack_text(problem.stream) + pack_text(_bounded(problem.text)) for problem in problems),
        )
    )


def decode_status(data: bytes) -> LinkStatus:
    """Decode how far a link is; of no bytes: it has not begun.  Raises Corrupt."""
    return _decode("the state of a link", data, _status) if data else LinkStatus()


def _status(c: Cursor) -> LinkStatus:
    flags = c.number(1)
    return LinkStatus(
        up=bool(flags & 1),
        compressed=bool(flags & 2),
        contact_ms=c.compact_long(),
        streams=c.compact_int(),
        lag_bytes=c.compact_long(),
        lag_seconds=c.compact_long() / _THOUSAND,
        copied_bytes=c.compact_long(),
        lost_bytes=c.compact_long(),
        clock_skew_ms=c.compact_signed(),
        failing=c.compact_int(),
        note=c.text(),
        problems=tuple(StreamProblem(c.text(), c.text()) for _ in range(c.compact_int())),
    )


def _encode_settings(settings: LinkSettings) -> bytes:
    retention = settings.retention
    fixed = bytes(
        (
            _DIRECTIONS.index(settings.direction),
            _OVERFLOWS.index(settings.overflow),
            sum(getattr(settings, flag) << bit for bit, flag in enumerate(_FLAGS)),
            retention is not None,
        )
    )
    kept = b""
    if retention is not None:
        kept = bytes((retention.type,)) + pack_long(retention.limit) + pack_long(retention.maximum)
    return b"".join(
        (
            fixed,
            kept,
            *(pack_text(text) for text in (settings.peer, settings.user, settings.password, settings.ca)),
            _pack_texts(settings.include),
            _pack_texts(settings.exclude),
            pack_int(len(settings.priorities)),
            *(pack_text(glob) + pack_signed(level) for glob, level in settings.priorities),
            pack_long(settings.bytes_per_second),
            pack_text(settings.window),
            pack_signed(settings.start_ms),
            pack_long(settings.hold_bytes),
        )
    )


def _decode_settings(c: Cursor) -> LinkSettings:
    direction, overflow, flags = _DIRECTIONS[c.number(1)], _OVERFLOWS[c.number(1)], c.number(1)
    retention = None
    if c.number(1):
        retention = RetentionPolicy(RetentionType(c.number(1)), c.compact_long(), c.compact_long())
    return LinkSettings(
        direction=direction,
        overflow=overflow,
        retention=retention,
        peer=c.text(),
        user=c.text(),
        password=c.text(),
        ca=c.text(),
        include=_take_texts(c),
        exclude=_take_texts(c),
        priorities=tuple((c.text(), c.compact_signed()) for _ in range(c.compact_int())),
        bytes_per_second=c.compact_long(),
        window=c.text(),
        start_ms=c.compact_signed(),
        hold_bytes=c.compact_long(),
        **{flag: bool(flags >> bit & 1) for bit, flag in enumerate(_FLAGS)},
    )


def _pack_texts(texts: Iterable[str]) -> bytes:
    packed = [pack_text(text) for text in texts]
    return b"".join((pack_int(len(packed)), *packed))


def _take_texts(c: Cursor) -> tuple[str, ...]:
    return tuple(c.text() for _ in range(c.compact_int()))


def _bounded(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text[:MAX_LINK_NOTE_CHARACTERS])


def _decode(what: str, data: bytes, read: Callable[[Cursor], T]) -> T:
    cursor = Cursor(data)
    try:
        if (found := cursor.number(1)) != _FORMAT:
            raise Invalid(f"its format is {found}, and {_FORMAT} is known")
        value = read(cursor)
    except (Invalid, ValueError, IndexError) as error:
        raise Corrupt(f"{what} is damaged: {error}") from None
    if not cursor.at_end:
        raise Corrupt(f"{what} has bytes after its end")
    return value
