"""What the node reports about itself to the console: values, and the port that a process fills.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.core.names import StreamName
    from sarit.security.permissions import Caller


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container.  `state`: as `HealthState`.  `store`: who serves it; `moving_to`: who is to.

    `dirty_bytes`, `segments`: in memory; None: not known here."""

    number: int
    state: str
    reason: str = ""
    store: str = ""
    moving_to: str = ""
    dirty_bytes: int | None = None
    segments: int | None = None


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store process; `state`: what is said about it, "" when there is nothing to say."""

    name: str
    address: str
    containers: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class DiskView:
    """One directory on a disk; bytes.  `full`: less than the reserve is free.  `waits`: what waits then."""

    directory: str
    free_bytes: int | None
    reserve_bytes: int
    full: bool
    waits: str


@dataclass(frozen=True, slots=True)
class TierView:
    """Where one kind of data is: `name` ("log", "chunks", "index"), `place` (a URL or a path)."""

    name: str
    place: str


@dataclass(frozen=True, slots=True)
class MemoryView:
    """Bytes in memory.  Above `append_limit_bytes` appends wait (`throttled`); above the soft limit flushes hurry."""

    dirty_bytes: int
    soft_limit_bytes: int
    append_limit_bytes: int
    control_limit_bytes: int
    cached_bytes: int
    cache_limit_bytes: int
    throttled: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """A node or a cluster at one moment.  `health`: "ok", "degraded" or "failed", with its `reasons`.

    `kind`: "node", "processes" or "cluster".  `rates`: by name, per second; `since_ms`: since 1970."""

    kind: str
    version: str
    health: str
    reasons: Sequence[str]
    since_ms: int
    addresses: Mapping[str, str]
    containers: Sequence[ContainerView]
    stores: Sequence[StoreView]
    tiers: Sequence[TierView]
    disks: Sequence[DiskView] = ()
    memory: MemoryView | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One option as text; `origin`: where its value comes from, "" when that is not known.  Secrets are hidden."""

    name: str
    value: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has not ended; times in ms, `began_ms` since 1970.  `state`: "open", "committing", …"""

    id: str
    state: str
    began_ms: int
    lease_ms: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class SegmentRate:
    """Events and bytes per second that a segment gets, averaged over the shortest window of scaling by rate; None:
    not known."""

    event_rate: float | None
    byte_rate: float | None


@dataclass(frozen=True, slots=True)
class ComponentView:
    """Something that a cluster needs: "zookeeper", "bookies" or "storage".  `state`: "ok", "degraded", "failed" or
    "unknown"."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class RequestsView:
    """Requests of one store to object storage in the last `seconds`; None: it has not reported for a while."""

    store: str
    seconds: float | None = None
    chunk_puts: int | None = None
    index_puts: int | None = None
    chunk_gets: int | None = None
    index_gets: int | None = None
    dollars_a_day: float | None = None


@dataclass(frozen=True, slots=True)
class ReportView:
    """The age of what a store has reported of its health, in seconds; None: it has not since it started."""

    store: str
    age: float | None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at one moment.  `address`: of its coordination service.  `requests`: empty without an object store."""

    address: str
    lease_seconds: float
    containers: int
    served: int
    components: Sequence[ComponentView]
    reports: Sequence[ReportView]
    requests: Sequence[RequestsView] = ()


class NodeView(Protocol):
    """The interface of the process that the console runs in.  Calls raise the kinds of `core.errors`."""

    async def overview(self) -> Overview:
        """Return the node now.  Raises Unavailable (what it needs to ask for it)."""

    async def settings(self) -> Sequence[Setting]:
        """Return the configuration, with secrets hidden."""

    async def open_transactions(self, stream: StreamName, most: int) -> Sequence[OpenTransaction]:
        """Return the transactions of a stream that have not ended, at most `most` of them.  Raises NotFound."""

    async def rates(self, segments: Sequence[str]) -> Sequence[SegmentRate]:
        """Return the rates of segments, by their full names, in order; 0 without writers.  Raises Unavailable."""

    async def cluster(self) -> ClusterView | None:
        """Return the cluster that the process belongs to; None: it belongs to none.  Raises Unavailable."""

    def may_change(self, caller: Caller, *resources: str) -> bool:
        """Return whether the rules let a caller change one of these resources."""
