"""Sarit: distributed stream storage that speaks the Pravega protocols.

    import sarit

    with sarit.connect("127.0.0.1:9090") as client:
        ...

Names are imported when they are first used, so that `import sarit` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sarit.client.blocking.client import Client
    from sarit.client.blocking.connection import connect
    from sarit.client.blocking.coordination import (
        LeaderElection,
        Membership,
        RevisionedStream,
        SharedConfiguration,
        StateSynchronizer,
    )
    from sarit.client.blocking.groups import GroupReader, ReaderGroup
    from sarit.client.blocking.handles import BatchReader, Stream, TimeWindows
    from sarit.client.blocking.streams import ByteReader, ByteWriter, EventReader, EventWriter
    from sarit.client.blocking.tables import Table
    from sarit.client.blocking.transactions import Transaction, TransactionalWriter
    from sarit.client.core.login import BearerToken, Tls, UserPassword
    from sarit.client.core.values import TransactionStatus
    from sarit.client.groups.position import Checkpoint, Position
    from sarit.client.groups.reader import ArrowBatch, CheckpointEvent, EventBatch, GroupEvent
    from sarit.client.reader.pointers import EventPointer
    from sarit.client.sync.membership_list import Member
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.client.tables.changes import Insert, Put, Remove, Replace
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
        Truncated,
        Unauthenticated,
        Unavailable,
    )
    from sarit.core.names import SegmentId, StreamName
    from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy

_HOMES = {
    "sarit.client.blocking.client": ("Client",),
    "sarit.client.blocking.connection": ("connect",),
    "sarit.client.blocking.coordination": (
        "LeaderElection",
        "Membership",
        "RevisionedStream",
        "SharedConfiguration",
        "StateSynchronizer",
    ),
    "sarit.client.blocking.groups": ("GroupReader", "ReaderGroup"),
    "sarit.client.reader.pointers": ("EventPointer",),
    "sarit.client.groups.position": ("Checkpoint", "Position"),
    "sarit.client.groups.reader": ("ArrowBatch", "CheckpointEvent", "EventBatch", "GroupEvent"),
    "sarit.client.sync.membership_list": ("Member",),
    "sarit.client.sync.revisioned_stream": ("Revision",),
    "sarit.client.blocking.handles": ("BatchReader", "Stream", "TimeWindows"),
    "sarit.client.blocking.transactions": ("Transaction", "TransactionalWriter"),
    "sarit.client.blocking.tables": ("Table",),
    "sarit.client.tables.changes": ("Insert", "Put", "Remove", "Replace"),
    "sarit.client.core.login": ("BearerToken", "Tls", "UserPassword"),
    "sarit.client.core.values": ("TransactionStatus",),
    "sarit.client.blocking.streams": ("ByteReader", "ByteWriter", "EventReader", "EventWriter"),
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
        "Truncated",
        "Unauthenticated",
        "Unavailable",
    ),
    "sarit.core.names": ("SegmentId", "StreamName"),
    "sarit.core.policies": ("RetentionPolicy", "RetentionType", "ScaleType", "ScalingPolicy"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ArrowBatch",
    "BatchReader",
    "BearerToken",
    "ByteReader",
    "ByteWriter",
    "Checkpoint",
    "CheckpointEvent",
    "Client",
    "Conflict",
    "Corrupt",
    "Envelope",
    "EventBatch",
    "EventPointer",
    "EventReader",
    "EventWriter",
    "Exists",
    "Fenced",
    "Forbidden",
    "GroupEvent",
    "GroupReader",
    "Insert",
    "Invalid",
    "LeaderElection",
    "Member",
    "Membership",
    "NotFound",
    "Position",
    "Put",
    "ReaderGroup",
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
    "SegmentId",
    "SharedConfiguration",
    "StateSynchronizer",
    "Stream",
    "StreamCut",
    "StreamName",
    "Table",
    "TimeWindows",
    "Tls",
    "Transaction",
    "TransactionStatus",
    "TransactionalWriter",
    "Truncated",
    "Unauthenticated",
    "Unavailable",
    "UserPassword",
    "connect",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'sarit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
