"""A change feed of a table: a stream with every change of every key, in order per key, each once.

    python examples/table_change_feed/feed.py bank/accounts

A program that changes a table and then writes an event may die in between.  So each change is stored in the table
together with a note of it, in one update: both share a primary key, so the update is atomic.  The feeder writes the
notes to the stream `<table>-changes` and removes them when they are durable there.  After a crash in between the notes
still exist; the stream shows which of them it has already.

The stream may be truncated: a change without a note was written to it.  A change is written twice, which its number
shows, only in two rare cases: a feeder wrote it just before it died, and it was truncated before the next feeder read
the stream; or the append of a dead feeder reaches the store only after the next feeder has read the stream.

Run one feeder at a time.  It scans all keys of the table each time: for large tables, store the notes in a table with
fewer primary keys.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import sarit

if TYPE_CHECKING:
    from collections.abc import Callable

KEY_BYTES: Final = 8
STATE: Final = "state".ljust(KEY_BYTES)
NOTE: Final = "#"
MAX_REMOVED_AT_ONCE: Final = 256
PAUSE_SECONDS: Final = 0.2


def changes_of(table: str) -> str:
    """The stream with the changes of a table."""
    return f"{table}-changes"


def note_of(number: int) -> str:
    """The secondary key of the note of a change."""
    return f"{NOTE}{number:0{KEY_BYTES - 1}}"


def create(client: sarit.Client, table: str) -> None:
    """Create the table and its stream."""
    client.create_scope(table.partition("/")[0])
    client.tables.create(table, primary_key_bytes=KEY_BYTES, secondary_key_bytes=KEY_BYTES, partitions=4)
    client.create_stream(changes_of(table), segments=4)


def change(table: sarit.Table, key: str, decide: Callable[[Any], Any]) -> Any:
    """Set `key` to `decide(old value)`, None for no value.  Retries when another client was faster."""
    name = key.ljust(KEY_BYTES)
    while True:
        entry = table.get((name, STATE))
        old: dict[str, Any] = {"number": 0, "value": None} if entry is None else json.loads(entry.value)
        new = {"number": old["number"] + 1, "value": decide(old["value"])}
        text = json.dumps(new)
        state = (name, STATE)
        try:
            table.update([
                sarit.Insert(state, text) if entry is None else sarit.Replace(state, text, entry.version),
                sarit.Insert((name, note_of(new["number"])), text),
            ])  # fmt: skip
        except sarit.Conflict:
            continue
        return new["value"]


class Feeder:
    """Moves notes of changes from a table to its stream."""

    def __init__(self, client: sarit.Client, table: str) -> None:
        self._table = client.table(table)
        self._writer = client.writer(changes_of(table))
        self._written: dict[str, int] = {}
        for event in client.reader(changes_of(table), end="tail", skip_truncated=True):
            change = json.loads(event)
            self._written[change["key"]] = change["number"]

    def feed(self) -> int:
        """Write the new changes, in order per key; return their number."""
        notes = [entry.key for entry in self._table.scan_keys() if entry.secondary.startswith(NOTE.encode())]
        found = [entry for entry in self._table.get_many(notes) if entry is not None]
        count, finished = 0, []
        for entry in found:
            key, note = entry.primary.decode().rstrip(), json.loads(entry.value)
            last = self._written.get(key, 0)
            if note["number"] > last + 1 and self._table.get((entry.primary, note_of(note["number"] - 1))) is not None:
                continue  # the scan missed the change before it: write both next time
            if note["number"] > last:
                self._writer.write(json.dumps({"key": key} | note), key=key)
                self._written[key] = note["number"]
                count += 1
            finished.append(entry)
        self._writer.flush()
        self._forget(finished)
        return count

    def _forget(self, finished: list[Any]) -> None:
        """Remove notes of changes that are in the stream."""
        for _, notes in groupby(finished, key=lambda entry: entry.primary):
            doomed = [sarit.Remove(entry.key, entry.version) for entry in notes]
            for at in range(0, len(doomed), MAX_REMOVED_AT_ONCE):
                self._table.update(doomed[at : at + MAX_REMOVED_AT_ONCE])

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


def main() -> None:
    """Feed until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("table")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt), sarit.connect(options.controller, wait=60) as client:
        create(client, options.table)
        feeder = Feeder(client, options.table)
        print(f"the changes of {options.table} are written to {changes_of(options.table)}", flush=True)
        while True:
            if written := feeder.feed():
                print(written, "changes written", flush=True)
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
