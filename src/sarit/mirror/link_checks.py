"""Checks of links before they are stored: what one link's settings may be, and which links exclude each other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Exists, Invalid
from sarit.core.links import HoldOverflow, LinkDirection, LinkRole, LinkState
from sarit.core.policies import RetentionPolicy
from sarit.mirror.globs import common, is_glob
from sarit.mirror.limits import (
    MAX_HOLD_BYTES,
    MAX_LINK_BYTES_PER_SECOND,
    MAX_LINK_GLOB_CHARACTERS,
    MAX_LINK_GLOBS,
    MAX_LINK_NAME_CHARACTERS,
    MAX_LINK_PRIORITY,
    MAX_LINK_TEXT_CHARACTERS,
    MIN_HOLD_BYTES,
    MIN_LINK_BYTES_PER_SECOND,
)
from sarit.mirror.values import FROM_TAIL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sarit.core.links import Link, LinkSettings

# What a link may read of its node to log in.  Other variables and files hold other secrets, and whoever creates a link
# also chooses who gets to see them: the peer.
PASSWORD_VARIABLE: Final = "SARIT_LINK_"
PASSWORD_SUFFIX: Final = ".password"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9.\-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_TLS: Final = "tls://"
_USER: Final = re.compile(r"[A-Za-z0-9._@\-]{1,128}")
_VARIABLE: Final = re.compile(rf"env:{PASSWORD_VARIABLE}[A-Z0-9_]+")
_TIME: Final = r"([01][0-9]|2[0-3]):([0-5][0-9])"
_WINDOW: Final = re.compile(rf"{_TIME}-{_TIME}")
_MINUTES_PER_HOUR: Final = 60


def check_name(name: str) -> None:
    """Check the name of a link.  Raises Invalid."""
    if len(name) > MAX_LINK_NAME_CHARACTERS or not _NAME.fullmatch(name):
        raise Invalid(
            f"{_shown(name)} is no name of a link: use small letters, digits and '-', at most "
            f"{MAX_LINK_NAME_CHARACTERS}"
        )


def check_settings(settings: LinkSettings) -> None:
    """Check the settings of a link by themselves.  Raises Invalid, with what to give instead."""
    _check_peer(settings)
    _check_globs("include", settings.include)
    _check_globs("exclude", settings.exclude)
    _check_globs("priorities", [glob for glob, _ in settings.priorities])
    if not settings.include:
        raise Invalid("a link copies nothing without a glob of SCOPE/STREAM: give some, as factory/*")
    for glob, level in settings.priorities:
        if not -MAX_LINK_PRIORITY <= level <= MAX_LINK_PRIORITY:
            raise Invalid(f"the priority of {glob} is {level}: give -{MAX_LINK_PRIORITY} to {MAX_LINK_PRIORITY}")
    minutes_of(settings.window)
    _check_numbers(settings)
    (settings.retention or RetentionPolicy()).check()
    if settings.retention is not None and settings.follow_truncation:
        raise Invalid("mirrors follow the truncations of their source, or have a retention of their own: not both")


def _check_peer(settings: LinkSettings) -> None:
    addresses = settings.peer.removeprefix(_TLS).split(",")
    if len(settings.peer) > MAX_LINK_TEXT_CHARACTERS or not all(map(_is_address, addresses)):
        raise Invalid(
            f"{_shown(settings.peer)} is no address of a peer: give HOST:PORT of a controller, as core.example:9090, "
            "or of several with commas; tls:// before it asks for TLS"
        )
    if bool(settings.user) != bool(settings.password):
        raise Invalid("a link logs in with a user and a password: give both, or neither")
    if settings.user and not _USER.fullmatch(settings.user):
        raise Invalid(f"{_shown(settings.user)} is no name of a user")
    if settings.password:
        check_password(settings.password)
    if settings.ca and (not settings.ca.startswith("/") or not _is_path(settings.ca)):
        raise Invalid(f"{_shown(settings.ca)} is no file of certificates: give its whole path on the node")
    if settings.ca and not settings.peer.startswith(_TLS):
        raise Invalid(f"there are certificates for {settings.peer}, which is no address with TLS: give tls://HOST:PORT")


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 1 << 16


def check_password(reference: str) -> None:
    """Check that a reference names a password, and is not one: again when it is read, as tables may be older.

    Raises Invalid."""
    # Do not show the reference: somebody may have given the password itself.
    if reference.startswith("file:"):
        path = reference.removeprefix("file:")
        if path.startswith("/") and path.endswith(PASSWORD_SUFFIX) and _is_path(path):
            return
    elif len(reference) <= MAX_LINK_TEXT_CHARACTERS and _VARIABLE.fullmatch(reference):
        return
    raise Invalid(
        "a link names where the node finds its password, and never the password: give file:PATH, a whole path that "
        f"ends in {PASSWORD_SUFFIX}, or env:NAME, a variable of the node that begins with {PASSWORD_VARIABLE}"
    )


def _is_path(path: str) -> bool:
    return len(path) <= MAX_LINK_TEXT_CHARACTERS and path.isprintable() and ".." not in path.split("/")


def _check_globs(what: str, globs: Sequence[str]) -> None:
    if len(globs) > MAX_LINK_GLOBS:
        raise Invalid(f"there are {len(globs)} globs in {what}; the most is {MAX_LINK_GLOBS}")
    for glob in globs:
        if len(glob) > MAX_LINK_GLOB_CHARACTERS or not is_glob(glob):
            raise Invalid(
                f"{_shown(glob)} is no glob of SCOPE/STREAM: give names of which * is any part and ? one character, as "
                "factory/*"
            )


def _check_numbers(settings: LinkSettings) -> None:
    rate, hold = settings.bytes_per_second, settings.hold_bytes
    if rate and not MIN_LINK_BYTES_PER_SECOND <= rate <= MAX_LINK_BYTES_PER_SECOND:
        raise Invalid(
            f"{rate} bytes per second: give {MIN_LINK_BYTES_PER_SECOND} to {MAX_LINK_BYTES_PER_SECOND}, or 0 for as "
            "fast as it can"
        )
    if hold and not MIN_HOLD_BYTES <= hold <= MAX_HOLD_BYTES:
        raise Invalid(f"{hold} bytes to hold: give {MIN_HOLD_BYTES} to {MAX_HOLD_BYTES}, or 0 to hold nothing")
    if settings.overflow is HoldOverflow.DROP and not hold:
        raise Invalid("what is dropped when the hold is full can be chosen only with a hold: give a number of bytes")
    if settings.overflow is HoldOverflow.DROP and settings.direction is LinkDirection.PULL:
        raise Invalid("the bound of a hold is kept by the source of a link that pushes: a link that pulls can make no "
                      "writers of its peer wait, nor drop what that holds; run the link there, as a push")  # fmt: skip
    if settings.start_ms < FROM_TAIL:
        raise Invalid(f"{settings.start_ms} is no time: give ms since 1970, 0 for the head, -1 for the tail")


def minutes_of(window: str) -> tuple[int, int] | None:
    """Return the begin and the end of a window in minutes of the day (UTC); None: always.  Raises Invalid.

    A window whose end is before its begin goes on after midnight."""
    if not window:
        return None
    found = _WINDOW.fullmatch(window)
    if found is None or window[:5] == window[6:]:
        raise Invalid(f"{_shown(window)} is no window: give two times of the day (UTC), as 22:00-06:00")
    hour, minute, end_hour, end_minute = map(int, found.groups())
    return hour * _MINUTES_PER_HOUR + minute, end_hour * _MINUTES_PER_HOUR + end_minute


def check_beside(link: Link, others: Iterable[Link], installation: str) -> None:
    """Check a link against the other links of its installation.  Raises Exists: both would write one stream; Invalid:
    it leads to its own installation, or it makes a loop."""
    if link.peer_installation == installation:
        raise Invalid(f"link {link.name} leads from this installation to itself: give the address of another one")
    for other in others:
        ended = LinkState.PROMOTED in (link.state, other.state)
        if other.name == link.name or LinkRole.PASSIVE in (link.role, other.role) or ended:
            continue
        met = common(link.settings, other.settings)
        if met is None:
            continue
        both = f"{met[0]} of link {link.name} and {met[1]} of link {other.name}"
        same_way = link.settings.direction is other.settings.direction
        if same_way and (link.settings.direction is LinkDirection.PULL or _same_peer(link, other)):
            raise Exists(f"{both} can be the same stream, which one link alone can write: exclude it from one of them")
        if not same_way and _same_peer(link, other):
            raise Invalid(f"{both} can be the same stream, which would be copied in a circle: exclude it from one")


def _same_peer(link: Link, other: Link) -> bool:
    known = link.peer_installation, other.peer_installation
    return known[0] == known[1] if all(known) else link.settings.peer == other.settings.peer


def check_change(before: LinkSettings, after: LinkSettings) -> None:
    """Check that the settings of a link may change so.  Raises Invalid."""
    check_settings(after)
    for what in ("direction", "start_ms"):
        if getattr(before, what) != getattr(after, what):
            raise Invalid(f"the {what.removesuffix('_ms')} of a link stays as it is: delete it, and create another one")


def _shown(text: str) -> str:
    return f"'{text[:MAX_LINK_NAME_CHARACTERS]}'" if text.isprintable() else "a text that cannot be printed"
