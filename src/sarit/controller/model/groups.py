"""Reader groups, decided.  Their streams' subscriptions follow the record: `subscribed` says what must hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller.model.records import GroupRecord, State
from sarit.core.errors import Conflict

if TYPE_CHECKING:
    from sarit.core.names import StreamName

_NO_RETENTION = 0


def create(wanted: GroupRecord) -> GroupRecord:
    """A new group, as its creator wants it."""
    return replace(wanted, state=State.CREATING, pending=False, leaving=())


def update(present: GroupRecord, wanted: GroupRecord) -> GroupRecord:
    """The next generation.  Raises Conflict when the caller speaks of another generation or group."""
    if (wanted.generation, wanted.group_id) != (present.generation, present.group_id):
        raise Conflict("the reader group has another generation or id", actual=present.generation)
    new = replace(wanted, state=State.ACTIVE, generation=present.generation + 1, pending=True, leaving=())
    stays = set(subscribed(new))
    return replace(new, leaving=tuple(name for name in subscribed(present) if name not in stays))


def settled(record: GroupRecord) -> GroupRecord:
    """The group when everything was done that its record asked for."""
    return replace(record, state=State.ACTIVE, pending=False, leaving=())


def is_pending(record: GroupRecord) -> bool:
    """Whether something was begun and not finished."""
    return record.pending or record.state is not State.ACTIVE


def subscribed(record: GroupRecord) -> tuple[StreamName, ...]:
    """Streams whose data the group holds back from truncation by retention."""
    if record.retention == _NO_RETENTION:
        return ()
    return tuple(sorted({name for name, _ in record.starts}))
