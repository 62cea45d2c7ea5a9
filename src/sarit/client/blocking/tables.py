"""Key-value tables for the blocking face: `table.py` behind a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.tables.scans import PAGE_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.tables import table as tables
    from sarit.client.tables.changes import Change
    from sarit.client.tables.layout import Entry, Key, Part, TableConfig
    from sarit.core.names import StreamName


class Tables:
    """The tables of a client: `client.tables`."""

    def __init__(self, thread: LoopThread, made: tables.Tables) -> None:
        self._thread = thread
        self._tables = made

    def __repr__(self) -> str:
        return f"blocking {self._tables!r}"

    def create(
        self, table: str | StreamName, *, primary_key_bytes: int, secondary_key_bytes: int = 0, partitions: int = 1
    ) -> bool:
        """True when created, False when it existed (and is left as it is).

        The lengths of keys and the number of partitions stay for ever.  Raises NotFound (scope), Invalid."""
        return self._thread.run(
            self._tables.create(
                table,
                primary_key_bytes=primary_key_bytes,
                secondary_key_bytes=secondary_key_bytes,
                partitions=partitions,
            )
        )

    def delete(self, table: str | StreamName) -> None:
        """Delete a table with all it holds.  Raises NotFound."""
        self._thread.run(self._tables.delete(table))

    def list(self, scope: str) -> list[StreamName]:
        """The tables of a scope.  Raises NotFound."""
        return self._thread.run(self._tables.list(scope))


class Table:
    """One table; may be shared by threads.  All methods raise NotFound (no such table), Invalid and Unavailable."""

    def __init__(self, thread: LoopThread, table: tables.Table) -> None:
        self._thread = thread
        self._table = table

    def __repr__(self) -> str:
        return f"blocking {self._table!r}"

    @property
    def name(self) -> StreamName:
        """`scope/table`."""
        return self._table.name

    def config(self) -> TableConfig:
        """How it was made."""
        return self._thread.run(self._table.config())

    def put(self, key: Key, value: bytes | str) -> int:
        """Set a value, whatever was there; its new version."""
        return self._thread.run(self._table.put(key, value))

    def insert(self, key: Key, value: bytes | str) -> int:
        """Set a value where none is; its version.  Raises Conflict when there is one."""
        return self._thread.run(self._table.insert(key, value))

    def replace(self, key: Key, value: bytes | str, version: int) -> int:
        """Set a value if the key still has `version`; its new version.  Raises Conflict."""
        return self._thread.run(self._table.replace(key, value, version))

    def remove(self, key: Key, version: int | None = None) -> None:
        """Remove a key (if it still has `version`); one that is absent stays so.  Raises Conflict (with `version`)."""
        self._thread.run(self._table.remove(key, version))

    def update(self, changes: Iterable[Change]) -> list[int]:
        """Make all changes or none; their versions in order, -1 for those removed.

        All keys must be of one partition (those with the same primary key are), all changes either write or remove,
        at most 256.  All conditions are judged against the state before.  Raises Conflict: nothing was changed."""
        return self._thread.run(self._table.update(list(changes)))

    def put_many(self, items: Iterable[tuple[Key, bytes | str]]) -> list[int]:
        """Put many at full speed, in order; their versions.  Not all or nothing: after an error, some are put.

        Everything is checked before anything is sent."""
        return self._thread.run(self._table.put_many(list(items)))

    def get(self, key: Key) -> Entry | None:
        """What a key has, None when it is absent."""
        return self._thread.run(self._table.get(key))

    def get_many(self, keys: Iterable[Key]) -> list[Entry | None]:
        """What many keys have, in order.  Not of one moment."""
        return self._thread.run(self._table.get_many(list(keys)))

    def scan(
        self,
        primary: Part | None = None,
        *,
        first: Part | None = None,
        last: Part | None = None,
        prefix: Part | None = None,
        page_entries: int = PAGE_ENTRIES,
    ) -> Iterator[Entry]:
        """Entries in the order of their keys: of the whole table, or of one primary key.

        `first`, `last`: bounds, both part of the range, of secondary keys when `primary` is given, else of primary
        ones; they may be shorter than a key.  `prefix`: keys that begin so.  Not of one moment: an entry changed
        meanwhile is seen before or after."""
        pages = self._table.scan_pages(primary, first=first, last=last, prefix=prefix, page_entries=page_entries)
        for page in self._thread.iterate(pages):
            yield from page

    def scan_keys(
        self,
        primary: Part | None = None,
        *,
        first: Part | None = None,
        last: Part | None = None,
        prefix: Part | None = None,
        page_entries: int = PAGE_ENTRIES,
    ) -> Iterator[Entry]:
        """As `scan`, without the values: they are empty."""
        return self._thread.iterate(
            self._table.scan_keys(primary, first=first, last=last, prefix=prefix, page_entries=page_entries)
        )
