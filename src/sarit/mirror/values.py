"""What the two sides of a link tell each other of a stream, as values.

Offsets and lengths are in bytes; a cut holds offsets by packed segment id (`core.names.SegmentId`); times are in ms
since 1970.  The mirror is the stream as it was at an earlier moment: its epochs are the first ones of the source's, and
each of its segments begins with the same bytes at the same offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch
    from sarit.core.names import StreamName
    from sarit.core.policies import StreamConfig

# Where a mirror begins, in place of a time.
FROM_HEAD: Final = 0
FROM_TAIL: Final = -1


@dataclass(frozen=True, slots=True)
class Site:
    """One side of a link.

    `installation`: its id, which no other installation has.  `protocol`: the version of the messages that it knows.
    `wall_ms`: its clock.  `compresses`: it reads and writes zstd."""

    installation: str
    protocol: int
    wall_ms: int
    compresses: bool = False


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The link on whose behalf a call is made: random bytes from its creation, its name, and the installation that
    runs it."""

    link_id: bytes
    name: str
    installation: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """A promotion in the history of a stream: from `epoch` on, `installation` wrote it.

    `ends`: where the segments that were active before it were sealed."""

    lineage_id: bytes
    epoch: int
    installation: str
    ends: Cut = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream as its source knows it, without its later epochs and its bytes.

    `creation_id`: 16 bytes that a stream created again under the name does not have.  `version`: rises when anything
    here changes.  `sealed`: by a user.  `fenced`: it is read-only since its mirror was, or is to be, promoted.  `head`:
    the cut at which it begins.  `first`: the epoch that the head's first segment was created in.  `path`: the
    installations through which it came here, this one last.  `lineages`: the promotions, oldest first."""

    name: StreamName
    creation_id: bytes
    first_number: int
    created_ms: int
    version: int
    config: StreamConfig
    properties: Mapping[str, str]
    sealed: bool
    fenced: bool
    head: Cut
    first: Epoch
    path: tuple[str, ...]
    lineages: tuple[Lineage, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """How far a mirror is: the number of its last epoch, and the lengths of the segments of that epoch."""

    name: StreamName
    epoch: int
    lengths: Cut


@dataclass(frozen=True, slots=True)
class Offer:
    """The bytes and epochs behind a position, up to a moment of the source at which no commit was under way.

    `lengths`: the length to reach of each segment of the position's epoch and of `epochs`, in that moment.  `sealed`:
    those that do not grow beyond it.  `starts`: where segments begin now, if that is not 0: bytes below it are gone.
    `epochs`: those behind the position's, in order.  `more`: there is more behind this offer already.  `version`: of
    the stream's facts.  `behind`: the bytes from the position to the end of the stream.  `oldest_ms`: a time at or
    before which the first byte behind the position was appended, as far as the source knows; 0: nothing is behind."""

    name: StreamName
    lengths: Cut
    sealed: frozenset[int]
    starts: Cut
    epochs: tuple[Epoch, ...]
    more: bool
    version: int
    behind: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of one segment (packed id) of a stream to read."""

    name: StreamName
    segment: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes for one segment of a mirror.  `staged`: nobody sees them before the round is finished; otherwise they are
    appended, as a whole, if the mirror's segment ends at `offset`."""

    name: StreamName
    segment: int
    offset: int
    data: bytes
    staged: bool


@dataclass(frozen=True, slots=True)
class Round:
    """The change of a mirror to the stream of a later moment: all of it, or nothing.

    `before`: the lengths from which it was staged.  `after`: the lengths to reach, also of segments of `epochs`.
    `sealed`: the segments to seal there.  `epochs`: to be added, in order.  `ends`: the stream is sealed with it.
    `head`: truncate the mirror there, if the link follows truncations; empty: do not."""

    name: StreamName
    before: Cut
    after: Cut
    sealed: frozenset[int]
    epochs: tuple[Epoch, ...]
    ends: bool = False
    head: Cut = field(default_factory=dict)


class MirrorStatus(IntEnum):
    """The answer of a target about one stream."""

    READY = 1  # the mirror of this link
    REFUSED = 2  # for good, with the reason
    PROMOTED = 3  # a stream of its own now; the source has to be read-only
    BUSY = 4  # another controller works on it: ask again


@dataclass(frozen=True, slots=True)
class MirrorState:
    """A mirror as its target knows it.

    `staged`: how many bytes behind `position.lengths` are staged, by segment.  `reason`: why it is not READY.
    `lineage`: of the promotion, if it was promoted.  `version`: of the facts that it has.  `head`: its own."""

    name: StreamName
    status: MirrorStatus
    position: Position | None = None
    staged: Cut = field(default_factory=dict)
    reason: str = ""
    lineage: Lineage | None = None
    version: int = 0
    head: Cut = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to one `Write`: where the segment, or what is staged of it, ends now.  `refused`: the write did not
    fit there; `reason`: it failed otherwise, empty if not."""

    end: int
    refused: bool = False
    reason: str = ""
