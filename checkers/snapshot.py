"""A state that shows one moment, as a backup does, checked over the history of the whole run.  Pure.

The moment is not known: it lies between `begun` (the backup was asked for) and `ended` (it had read everything).
`log_as_of` and `table_as_of` give the part of a history that binds such a state.  What was acknowledged or read before
`begun` must be there; what was sent before `ended` may be.  The state is then read as any other, into that history,
and the checkers of logs, tables and transactions judge it.

`Moment` is about all parts of a state together.  There must be a time at which everything that the state has was sent,
and nothing acknowledged that it does not have:

| kind | meaning |
|---|---|
| `two-moments` | it has what was sent after something that it does not have was acknowledged |
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from checkers.log import LogHistory, Violation
from checkers.table import ABSENT, TableHistory

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from checkers.log import Table

Column = Any


def _some(source: Table, target: Table, chosen: Column) -> None:
    target.extend(*(column[chosen] for column in source.columns()))


def log_as_of(history: LogHistory, begun: float, ended: float) -> LogHistory:
    """What binds a log's state of a moment in between; without scans."""
    part = LogHistory()
    _some(history.sends, part.sends, history.sends.columns()[-1] <= ended)
    _some(history.acks, part.acks, history.acks.columns()[-1] < begun)
    _some(history.refusals, part.refusals, slice(None))
    _some(history.reads, part.reads, history.reads.columns()[-1] < begun)
    _some(history.infos, part.infos, history.infos.columns()[-1] < begun)
    segment, offset, asked, answered = history.truncations.columns()
    may = asked <= ended
    part.truncations.extend(segment[may], offset[may], asked[may], np.where(answered < begun, answered, inf)[may])
    return part


def places_of_all(history: LogHistory, shown: LogHistory, transactions: Collection[int] = ()) -> LogHistory:
    """All that was ever read, and all that the state shows: one event at each place, and one place for each event.

    But for what the state shows of `transactions` (their writers) that were not known to be committed before: a commit
    under way at the moment is completed by whoever serves the state, after that moment, and so at another place."""
    both = LogHistory()
    _some(history.sends, both.sends, slice(None))
    _some(history.reads, both.reads, slice(None))
    under_way = set(transactions) - set(shown.acks.columns()[0].tolist())
    *columns, fresh, began, ended = shown.reads.columns()
    kept = ~np.isin(columns[3], list(under_way))
    # No read follows another one: where one is left out, the reader skipped nothing.
    both.reads.extend(*(column[kept] for column in (*columns, np.ones_like(fresh), began, ended)))
    return both


def table_as_of(history: TableHistory, begun: float, ended: float) -> TableHistory:
    """What binds a table's state of a moment in between."""
    updates = [
        update if update.ended < begun else replace(update, ended=inf)
        for update in history.updates
        if update.begun <= ended
    ]
    return TableHistory(updates, [read for read in history.reads if read.ended < begun])


class Moment:
    """Collects what a state has and what it does not have."""

    def __init__(self) -> None:
        self._sent: tuple[float, str] = (-inf, "")  # the last of what it has
        self._acknowledged: tuple[float, str] = (inf, "")  # the first of what it does not have

    def __repr__(self) -> str:
        return f"<Moment between {self._sent} and {self._acknowledged}>"

    def has(self, sent_at: float, what: str) -> None:
        """The state has it."""
        self._sent = max(self._sent, (sent_at, what))

    def lacks(self, acknowledged_at: float, what: str) -> None:
        """The state does not have it, nor did it lose it by a truncation."""
        self._acknowledged = min(self._acknowledged, (acknowledged_at, what))

    def log(self, whole: LogHistory, shown: LogHistory, name: str) -> None:
        """Add a log; `shown` has one scan of the state."""
        ((scan, extents),) = shown.scans.items()
        reader, _, _, writer, number = shown.reads.columns()[:5]
        mine = reader == scan
        newest: dict[int, int] = {}
        for one, event in zip(writer[mine].tolist(), number[mine].tolist(), strict=True):
            newest[one] = max(newest.get(one, 0), event)
        truncated = {segment for segment, (start, _) in extents.items() if start}
        sent_writer, sent_number, _, _, sent_at = whole.sends.columns()
        for one, event, at in zip(sent_writer.tolist(), sent_number.tolist(), sent_at.tolist(), strict=True):
            if event == newest.get(one):
                self.has(at, f"event {event} of writer {one} of {name}")
        acked_writer, acked_number, segment, _, acked_at = whole.acks.columns()
        for one, event, where, at in zip(
            acked_writer.tolist(), acked_number.tolist(), segment.tolist(), acked_at.tolist(), strict=True
        ):
            if event > newest.get(one, 0) and (one in newest or where not in truncated):
                self.lacks(at, f"event {event} of writer {one} of {name}")

    def table(self, whole: TableHistory, shown: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Add a table; `shown`: version and value of each key."""
        for update in whole.updates:
            version, value = shown.get(update.key, (ABSENT, b""))
            if update.value == value:
                self.has(update.begun, f"{update.value!r} of {update.key!r}")
            elif update.version is not None and update.version > version:
                self.lacks(update.ended, f"{update.value!r} of {update.key!r}")

    def check(self) -> list[Violation]:
        """Everything that is wrong; empty when nothing is."""
        (sent, newest), (acknowledged, oldest) = self._sent, self._acknowledged
        if sent <= acknowledged:
            return []
        return [
            Violation(
                "two-moments",
                f"{newest} is there, which was sent at {sent:.6f}; {oldest} is not, which was acknowledged at "
                f"{acknowledged:.6f}",
            )
        ]
