"""Links between installations, as values: what an administrator chose for a mirror, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sarit.core.public import public

if TYPE_CHECKING:
    from sarit.core.policies import RetentionPolicy


@public
class LinkDirection(Enum):
    """Which way a link copies, as seen from the installation that runs it."""

    PUSH = "push"  # its own streams, to the peer
    PULL = "pull"  # the peer's streams, to itself


@public
class LinkRole(Enum):
    """The part of this installation in a link."""

    ACTIVE = "active"  # runs the job
    PASSIVE = "passive"  # has mirrors that another installation writes


@public
class LinkState(Enum):
    """The life of a link."""

    ACTIVE = "active"
    PAUSED = "paused"
    DRAINING = "draining"  # a planned promotion: the source is read-only, and the rest is copied
    PROMOTED = "promoted"  # the mirrors are streams of their own: it copies nothing any more


@public
class HoldOverflow(Enum):
    """The choice for a source that holds as many bytes for a link as it may."""

    THROTTLE = "throttle"  # writers wait
    DROP = "drop"  # the oldest bytes go, and the mirror begins again behind them


@public
@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The choices for a link.

    `peer`: HOST:PORT, or tls://HOST:PORT, of a controller.  `user`: who to log in as; empty: nobody.  `password`: where
    the password is, `file:PATH` or `env:NAME`; never the password.  `ca`: the file with the peer's certificates; empty:
    those of the system.  `include`, `exclude`: globs of SCOPE/STREAM.  `priorities`: pairs of a glob and a class; a
    stream has the class of the first that matches, or 0, and higher classes are copied first.  `bytes_per_second`: 0:
    as fast as it can.  `window`: times of the day (UTC) in which it copies, as `22:00-06:00`; empty: always.
    `start_ms`: copy what was appended since that time (ms since 1970); 0: all there is; -1: only what comes.
    `retention`: of mirrors; None: they keep everything.  `hold_bytes`: how much the source keeps for the link beyond
    its own retention; 0: nothing.  `tables`, `registry`, `groups`: also copy key-value tables, schemas, positions of
    reader groups.  `restart`: when the source has dropped bytes before they were copied, begin the mirror again behind
    them.  `discard_divergent`: what this installation has of a stream, and the promoted peer has not, is exported and
    given up."""

    direction: LinkDirection
    peer: str
    user: str = ""
    password: str = ""
    ca: str = ""
    include: tuple[str, ...] = ("*/*",)
    exclude: tuple[str, ...] = ()
    priorities: tuple[tuple[str, int], ...] = ()
    bytes_per_second: int = 0
    window: str = ""
    start_ms: int = 0
    retention: RetentionPolicy | None = None
    follow_truncation: bool = False
    hold_bytes: int = 0
    overflow: HoldOverflow = HoldOverflow.THROTTLE
    tables: bool = True
    registry: bool = True
    groups: bool = False
    restart: bool = False
    discard_divergent: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it is stored.  `link_id`: 16 random bytes of its creation.  `peer_installation`: known since the first
    contact; empty before.  `version`: of its row."""

    name: str
    link_id: bytes
    created_ms: int
    role: LinkRole
    state: LinkState
    settings: LinkSettings
    peer_installation: str = ""
    version: int = 0


@public
@dataclass(frozen=True, slots=True)
class StreamProblem:
    """Why one stream of a link is not copied, or what to know of it."""

    stream: str
    text: str


@public
@dataclass(frozen=True, slots=True)
class LinkStatus:
    """How far a link is, as its job saved it last.

    `up`: the last call to the peer was answered.  `lag_bytes`, `lag_seconds`: what the source has and the mirror has
    not, and for how long.  `copied_bytes`: since the link was created.  `lost_bytes`: dropped before they were copied.
    `clock_skew_ms`: how far the peer's clock is ahead.  `problems`: some of them; `failing`: of how many streams."""

    up: bool = False
    contact_ms: int = 0
    streams: int = 0
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    copied_bytes: int = 0
    lost_bytes: int = 0
    clock_skew_ms: int = 0
    compressed: bool = False
    failing: int = 0
    problems: tuple[StreamProblem, ...] = field(default_factory=tuple)
    note: str = ""


@public
@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A link for its administrators.

    `created_ms`: since 1970; of a passive link: since it first wrote here.  `peer_installation`: the id of the other
    installation, empty before the first contact.  `version`: rises with each change.  `holder`: the worker that runs
    it, as HOST:PORT; empty: none.  `problem`: the error with which its job ended last; empty: none since."""

    name: str
    link_id: bytes
    created_ms: int
    role: LinkRole
    state: LinkState
    settings: LinkSettings
    peer_installation: str
    version: int
    status: LinkStatus
    holder: str
    problem: str


@public
@dataclass(frozen=True, slots=True)
class LinkPromotion:
    """How far a promotion is.  `promoted`: mirrors, by this call; `left`: mirrors to promote yet; `problems`: why some
    cannot be promoted now."""

    link: LinkInfo
    promoted: int
    left: int
    problems: tuple[StreamProblem, ...]
