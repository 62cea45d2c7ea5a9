"""Conversions between messages on links and values of `core.links`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sarit.core.errors import Invalid
from sarit.core.links import (
    HoldOverflow,
    LinkDirection,
    LinkInfo,
    LinkPromotion,
    LinkRole,
    LinkSettings,
    LinkState,
    LinkStatus,
    StreamProblem,
)
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.rpc.generated import controller_pb2, sarit_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

    E = TypeVar("E", bound=Enum)


def settings_message(settings: LinkSettings) -> sarit_pb2.LinkSettings:
    """Return the message for the settings of a link."""
    kept = settings.retention
    return sarit_pb2.LinkSettings(
        direction=settings.direction.value, peer=settings.peer, user=settings.user, password=settings.password,
        ca=settings.ca, include=settings.include, exclude=settings.exclude,
        priorities=[sarit_pb2.LinkPriority(glob=glob, level=level) for glob, level in settings.priorities],
        bytesPerSecond=settings.bytes_per_second, window=settings.window, startMs=settings.start_ms,
        retention=None if kept is None else controller_pb2.RetentionPolicy(
            retentionType=int(kept.type),  # type: ignore[arg-type]
            retentionParam=kept.limit, retentionMax=kept.maximum,
        ),
        followTruncation=settings.follow_truncation, holdBytes=settings.hold_bytes, overflow=settings.overflow.value,
        tables=settings.tables, registry=settings.registry, groups=settings.groups, restart=settings.restart,
        discardDivergent=settings.discard_divergent,
    )  # fmt: skip


def settings_of(message: sarit_pb2.LinkSettings) -> LinkSettings:
    """Return the settings in a message, without checking them.  Raises Invalid: an unknown choice."""
    kept = None
    if message.HasField("retention"):
        found = message.retention
        try:
            kept = RetentionPolicy(RetentionType(found.retentionType), found.retentionParam, found.retentionMax)
        except ValueError:
            raise Invalid(f"a retention policy has the type {found.retentionType}, which is unknown") from None
    return LinkSettings(
        direction=_choice(LinkDirection, "the direction of a link", message.direction),
        peer=message.peer, user=message.user, password=message.password, ca=message.ca,
        include=tuple(message.include), exclude=tuple(message.exclude),
        priorities=tuple((each.glob, each.level) for each in message.priorities),
        bytes_per_second=message.bytesPerSecond, window=message.window, start_ms=message.startMs, retention=kept,
        follow_truncation=message.followTruncation, hold_bytes=message.holdBytes,
        overflow=_choice(HoldOverflow, "the overflow of a hold", message.overflow or HoldOverflow.THROTTLE.value),
        tables=message.tables, registry=message.registry, groups=message.groups, restart=message.restart,
        discard_divergent=message.discardDivergent,
    )  # fmt: skip


def problem_messages(problems: Iterable[StreamProblem]) -> list[sarit_pb2.LinkProblem]:
    """Return the messages for problems."""
    return [sarit_pb2.LinkProblem(stream=each.stream, text=each.text) for each in problems]


def info_message(info: LinkInfo, *, problems: bool = True) -> sarit_pb2.LinkInfo:
    """Return the message for a link.  `problems`: with those of its streams."""
    status = info.status
    return sarit_pb2.LinkInfo(
        name=info.name, linkId=info.link_id, createdMs=info.created_ms, role=info.role.value, state=info.state.value,
        settings=settings_message(info.settings), peerInstallation=info.peer_installation, version=info.version,
        holder=info.holder, problem=info.problem,
        status=sarit_pb2.LinkStatus(
            up=status.up, contactMs=status.contact_ms, streams=status.streams, lagBytes=status.lag_bytes,
            lagSeconds=status.lag_seconds, copiedBytes=status.copied_bytes, lostBytes=status.lost_bytes,
            clockSkewMs=status.clock_skew_ms, compressed=status.compressed, failing=status.failing, note=status.note,
            problems=problem_messages(status.problems) if problems else (),
        ),
    )  # fmt: skip


def info_of(message: sarit_pb2.LinkInfo) -> LinkInfo:
    """Return the link in a message.  Raises Invalid: an unknown choice, of a newer server."""
    found = message.status
    status = LinkStatus(
        found.up, found.contactMs, found.streams, found.lagBytes, found.lagSeconds, found.copiedBytes, found.lostBytes,
        found.clockSkewMs, found.compressed, found.failing, _problems_of(found.problems), found.note,
    )  # fmt: skip
    return LinkInfo(
        message.name, message.linkId, message.createdMs, _choice(LinkRole, "the role of a link", message.role),
        _choice(LinkState, "the state of a link", message.state), settings_of(message.settings),
        message.peerInstallation, message.version, status, message.holder, message.problem,
    )  # fmt: skip


def promotion_of(message: sarit_pb2.PromoteLinkResponse) -> LinkPromotion:
    """Return how far a promotion is.  Raises Invalid."""
    return LinkPromotion(info_of(message.link), message.promoted, message.left, _problems_of(message.problems))


def _problems_of(messages: Iterable[Any]) -> tuple[StreamProblem, ...]:
    return tuple(StreamProblem(each.stream, each.text) for each in messages)


def _choice(kind: type[E], what: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        known = " or ".join(str(one.value) for one in kind)
        shown = f"'{text[:20]}'" if text.isprintable() else "a text that cannot be printed"
        raise Invalid(f"{what} is {shown}: give {known}") from None
