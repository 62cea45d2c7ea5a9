"""Decisions on reader groups.  The subscriptions of their streams follow the record: see `subscribed`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller.limits import MAX_STREAMS_OF_GROUP
from sarit.controller.model.records import GroupRecord, State
from sarit.core.errors import Conflict, Invalid
from sarit.core.names import is_internal_name

if TYPE_CHECKING:
    from sarit.core.names import StreamName

_NO_RETENTION = 0


def create(wanted: GroupRecord, fresh_id: str) -> GroupRecord:
    """Make the record of a new group; one without an id (all zeros) gets `fresh_id`, and begins at generation 0."""
    new = replace(wanted, state=State.CREATING, pending=False, leaving=())
    return new if wanted.group_id.strip("0-") else replace(new, group_id=fresh_id, generation=0)


def update(present: GroupRecord, wanted: GroupRecord) -> GroupRecord:
    """Return the record of the group's next generation.  Raises Conflict if `wanted` has another generation or id."""
    if (wanted.generation, wanted.group_id) != (present.generation, present.group_id):
        raise Conflict("the reader group has another generation or id", actual=present.generation)
    new = replace(wanted, state=State.ACTIVE, generation=present.generation + 1, pending=True, leaving=())
    stays = set(subscribed(new))
    return replace(new, leaving=tuple(name for name in subscribed(present) if name not in stays))


def completed(record: GroupRecord) -> GroupRecord:
    """Return a group's record after its pending work is complete."""
    return replace(record, state=State.ACTIVE, pending=False, leaving=())


def is_pending(record: GroupRecord) -> bool:
    """Return whether a group's record states unfinished work."""
    return record.pending or record.state is not State.ACTIVE


def subscribed(record: GroupRecord) -> tuple[StreamName, ...]:
    """Return the streams whose data the group protects from truncation by retention."""
    if record.retention == _NO_RETENTION:
        return ()
    # Skip impossible names, which earlier releases did not refuse: a table key may not be able to contain them.
    return tuple(sorted({name for name, _ in record.starts if is_possible(name)}))


def check_size(cuts: int) -> None:
    """Refuse a group that begins, or ends, at cuts of too many streams.  Raises Invalid."""
    if cuts > MAX_STREAMS_OF_GROUP:
        raise Invalid(f"a reader group reads at most {MAX_STREAMS_OF_GROUP} streams, not {cuts}: use several groups")


def check_names(record: GroupRecord) -> None:
    """Check the names of a group's streams.  Raises Invalid."""
    for name, _ in (*record.starts, *record.ends):
        if not is_possible(name):
            raise Invalid(f"{str(name)[:80]!r} is not the name of a stream: SCOPE/STREAM of letters, digits, '.', '-'")


def is_possible(name: StreamName) -> bool:
    """Return whether there can be a stream of this name."""
    return is_internal_name(name.scope) and is_internal_name(name.stream)
