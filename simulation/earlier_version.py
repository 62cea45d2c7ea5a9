"""A store of an earlier version of Sarit, as a rolling restart has it beside stores of this one.

Formats have not changed since, so all that differs is which internal commands it knows
(docs/formats/internal-commands.md).  One that it does not know ends the connection.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.wire import commands as wire
from sarit.wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.store.server.internal_handler import InternalHandler, InternalSession

# The commands that came last.
UNKNOWN: Final = (
    wire.CreateFreshSegments, wire.UseQuotas, wire.MeasureScope, wire.CreateSegmentAt, wire.MergeAt, wire.AppendBatch,
    wire.ReadBatch, wire.GetStates, wire.SetMirror,
)  # fmt: skip


def forget_newest_commands(handler: InternalHandler) -> None:
    """Let a store answer internal commands as one of an earlier version does."""
    right = handler.introduce

    def introduce(secret: bytes) -> InternalSession | None:
        session = right(secret)
        if session is not None:
            session.handles = partial(_handles, session.handles)  # type: ignore[method-assign]
        return session

    handler.introduce = introduce  # type: ignore[method-assign]


def _handles(right: Callable[[object], bool], command: object) -> bool:
    if isinstance(command, UNKNOWN):
        raise ProtocolError(f"unknown command {command.code}")
    return right(command)
