"""Sarit: distributed stream storage that speaks the Pravega protocols.

    import sarit

    with sarit.connect("127.0.0.1:9090") as client:
        ...

This is the blocking client; `sarit.aio` is the asyncio client.  Names are imported when they are first used, so that
`import sarit` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from sarit import aio
    from sarit.client.blocking.client import Client
    from sarit.client.blocking.connection import connect
    from sarit.client.blocking.continuous import ContinuousQueries
    from sarit.client.blocking.coordination import (
        Coordination,
        LeaderElection,
        Membership,
        RevisionedStream,
        SharedConfiguration,
        StateSynchronizer,
    )
    from sarit.client.blocking.groups import GroupReader, ReaderGroup, ReaderGroups
    from sarit.client.blocking.handles import BatchReader, Stream, TimeWindows
    from sarit.client.blocking.links import Links
    from sarit.client.blocking.searches import Searches
    from sarit.client.blocking.streams import ByteReader, ByteWriter, EventReader, EventWriter
    from sarit.client.blocking.structures import (
        SharedCounter,
        SharedList,
        SharedMap,
        SharedQueue,
        SharedSet,
        Structures,
    )
    from sarit.client.blocking.tables import Table, Tables
    from sarit.client.blocking.transactions import Transaction, TransactionalWriter
    from sarit.client.core.login import BearerToken, Credentials, Tls, UserPassword
    from sarit.client.core.values import Cut, SegmentInfo, SegmentRange, StreamInfo, Successor, TransactionStatus
    from sarit.client.groups.group import GroupInfo
    from sarit.client.groups.position import Checkpoint, CutLike, Position
    from sarit.client.groups.progress import SegmentProgress
    from sarit.client.groups.reader import ArrowBatch, CheckpointEvent, EventBatch, GroupEvent
    from sarit.client.groups.values import GroupConfig, GroupSegment, KeyPart
    from sarit.client.reader.batch import Slice
    from sarit.client.reader.cursor import Events
    from sarit.client.reader.pointers import EventPointer
    from sarit.client.search.continuous import ContinuousProgress, ContinuousQuery
    from sarit.client.search.results import SearchHit, SearchInfo, SearchResult
    from sarit.client.streams.event_time import TimeWindow
    from sarit.client.streams.history import Epoch
    from sarit.client.streams.jobs import JobInfo
    from sarit.client.structures.shared_list import ListItem
    from sarit.client.structures.shared_map import MapChange, MapEntry
    from sarit.client.structures.shared_queue import QueueItem
    from sarit.client.structures.shared_set import SetChange
    from sarit.client.sync.membership_list import Member
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.client.tables.changes import Change, Insert, Put, Remove, Replace
    from sarit.client.tables.layout import Entry, Key, Part, TableConfig
    from sarit.core.cuts import StreamCut
    from sarit.core.envelope import Envelope
    from sarit.core.errors import (
        Conflict,
        Corrupt,
        Exists,
        Fenced,
        Forbidden,
        Invalid,
        NotFound,
        SaritError,
        Sealed,
        TimedOut,
        Truncated,
        Unauthenticated,
        Unavailable,
        Unreachable,
    )
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
    from sarit.core.names import SegmentId, StreamName
    from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig

    __version__: str

_HOMES = {
    "sarit.client.blocking.client": ("Client",),
    "sarit.client.blocking.connection": ("connect",),
    "sarit.client.blocking.continuous": ("ContinuousQueries",),
    "sarit.client.blocking.coordination": (
        "Coordination",
        "LeaderElection",
        "Membership",
        "RevisionedStream",
        "SharedConfiguration",
        "StateSynchronizer",
    ),
    "sarit.client.blocking.groups": (
        "GroupReader",
        "ReaderGroup",
        "ReaderGroups",
    ),
    "sarit.client.blocking.handles": (
        "BatchReader",
        "Stream",
        "TimeWindows",
    ),
    "sarit.client.blocking.links": ("Links",),
    "sarit.client.blocking.searches": ("Searches",),
    "sarit.client.blocking.streams": (
        "ByteReader",
        "ByteWriter",
        "EventReader",
        "EventWriter",
    ),
    "sarit.client.blocking.structures": (
        "SharedCounter",
        "SharedList",
        "SharedMap",
        "SharedQueue",
        "SharedSet",
        "Structures",
    ),
    "sarit.client.blocking.tables": (
        "Table",
        "Tables",
    ),
    "sarit.client.blocking.transactions": (
        "Transaction",
        "TransactionalWriter",
    ),
    "sarit.client.core.login": (
        "BearerToken",
        "Credentials",
        "Tls",
        "UserPassword",
    ),
    "sarit.client.core.values": (
        "Cut",
        "SegmentInfo",
        "SegmentRange",
        "StreamInfo",
        "Successor",
        "TransactionStatus",
    ),
    "sarit.client.groups.group": ("GroupInfo",),
    "sarit.client.groups.position": (
        "Checkpoint",
        "CutLike",
        "Position",
    ),
    "sarit.client.groups.progress": ("SegmentProgress",),
    "sarit.client.groups.reader": (
        "ArrowBatch",
        "CheckpointEvent",
        "EventBatch",
        "GroupEvent",
    ),
    "sarit.client.groups.values": (
        "GroupConfig",
        "GroupSegment",
        "KeyPart",
    ),
    "sarit.client.reader.batch": ("Slice",),
    "sarit.client.reader.cursor": ("Events",),
    "sarit.client.reader.pointers": ("EventPointer",),
    "sarit.client.search.continuous": (
        "ContinuousProgress",
        "ContinuousQuery",
    ),
    "sarit.client.search.results": (
        "SearchHit",
        "SearchInfo",
        "SearchResult",
    ),
    "sarit.client.streams.event_time": ("TimeWindow",),
    "sarit.client.streams.history": ("Epoch",),
    "sarit.client.streams.jobs": ("JobInfo",),
    "sarit.client.structures.shared_list": ("ListItem",),
    "sarit.client.structures.shared_map": (
        "MapChange",
        "MapEntry",
    ),
    "sarit.client.structures.shared_queue": ("QueueItem",),
    "sarit.client.structures.shared_set": ("SetChange",),
    "sarit.client.sync.membership_list": ("Member",),
    "sarit.client.sync.revisioned_stream": ("Revision",),
    "sarit.client.tables.changes": (
        "Change",
        "Insert",
        "Put",
        "Remove",
        "Replace",
    ),
    "sarit.client.tables.layout": (
        "Entry",
        "Key",
        "Part",
        "TableConfig",
    ),
    "sarit.core.cuts": ("StreamCut",),
    "sarit.core.envelope": ("Envelope",),
    "sarit.core.errors": (
        "Conflict",
        "Corrupt",
        "Exists",
        "Fenced",
        "Forbidden",
        "Invalid",
        "NotFound",
        "SaritError",
        "Sealed",
        "TimedOut",
        "Truncated",
        "Unauthenticated",
        "Unavailable",
        "Unreachable",
    ),
    "sarit.core.links": (
        "HoldOverflow",
        "LinkDirection",
        "LinkInfo",
        "LinkPromotion",
        "LinkRole",
        "LinkSettings",
        "LinkState",
        "LinkStatus",
        "StreamProblem",
    ),
    "sarit.core.names": (
        "SegmentId",
        "StreamName",
    ),
    "sarit.core.policies": (
        "RetentionPolicy",
        "RetentionType",
        "ScaleType",
        "ScalingPolicy",
        "StreamConfig",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ArrowBatch",
    "BatchReader",
    "BearerToken",
    "ByteReader",
    "ByteWriter",
    "Change",
    "Checkpoint",
    "CheckpointEvent",
    "Client",
    "Conflict",
    "ContinuousProgress",
    "ContinuousQueries",
    "ContinuousQuery",
    "Coordination",
    "Corrupt",
    "Credentials",
    "Cut",
    "CutLike",
    "Entry",
    "Envelope",
    "Epoch",
    "EventBatch",
    "EventPointer",
    "EventReader",
    "EventWriter",
    "Events",
    "Exists",
    "Fenced",
    "Forbidden",
    "GroupConfig",
    "GroupEvent",
    "GroupInfo",
    "GroupReader",
    "GroupSegment",
    "HoldOverflow",
    "Insert",
    "Invalid",
    "JobInfo",
    "Key",
    "KeyPart",
    "LeaderElection",
    "LinkDirection",
    "LinkInfo",
    "LinkPromotion",
    "LinkRole",
    "LinkSettings",
    "LinkState",
    "LinkStatus",
    "Links",
    "ListItem",
    "MapChange",
    "MapEntry",
    "Member",
    "Membership",
    "NotFound",
    "Part",
    "Position",
    "Put",
    "QueueItem",
    "ReaderGroup",
    "ReaderGroups",
    "Remove",
    "Replace",
    "RetentionPolicy",
    "RetentionType",
    "Revision",
    "RevisionedStream",
    "SaritError",
    "ScaleType",
    "ScalingPolicy",
    "Sealed",
    "SearchHit",
    "SearchInfo",
    "SearchResult",
    "Searches",
    "SegmentId",
    "SegmentInfo",
    "SegmentProgress",
    "SegmentRange",
    "SetChange",
    "SharedConfiguration",
    "SharedCounter",
    "SharedList",
    "SharedMap",
    "SharedQueue",
    "SharedSet",
    "Slice",
    "StateSynchronizer",
    "Stream",
    "StreamConfig",
    "StreamCut",
    "StreamInfo",
    "StreamName",
    "StreamProblem",
    "Structures",
    "Successor",
    "Table",
    "TableConfig",
    "Tables",
    "TimeWindow",
    "TimeWindows",
    "TimedOut",
    "Tls",
    "Transaction",
    "TransactionStatus",
    "TransactionalWriter",
    "Truncated",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "UserPassword",
    "__version__",
    "aio",
    "connect",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("sarit")
    elif name == "aio":
        value = import_module("sarit.aio")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'sarit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
