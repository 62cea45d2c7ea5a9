"""Repairs the index of a stopped node, as far as no guess is needed.

What can be repaired, and why it is no guess:

- *One flipped bit in a record.*  Its checksum says which bit: no other record that differs in one bit has it.  The same
  for keys that are out of order because of such a bit.
- *The name of a segment* is in the segment's record, too.
- *Records of segments that do not exist*, and damaged records of what is to be deleted, are dropped: nobody can need
  them.  The chunk that one named stays in long-term storage.

Nothing else is: damaged pages of SQLite, lost commits, damaged chunks and log files come back from a backup, or not at
all.  `sarit verify` says what is lost.

The repaired index is a new file.  The damaged one is renamed to `container-N.db.damaged`, with its WAL, and never
deleted here.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.index import keys
from sarit.index.database import check_files, open_writer
from sarit.index.examination import check_schema, check_structure, right_record
from sarit.index.limits import INDEX_CACHE_BYTES
from sarit.index.record_seals import is_whole, seal, unseal
from sarit.ops.verify.directory import connect
from sarit.store.container.segment import load_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.env.ports import Env, Files

Row = tuple[bytes, bytes]

_ROWS_PER_STEP: Final = 2000
_SUFFIXES: Final = ("", "-wal", "-shm")
_TO_DELETE: Final = tuple(keys.meta_key(name) for name in ("transient/", "failed/"))


@dataclass(slots=True)
class Plan:
    """The plan to repair one index: what it does (`changes`), and what it cannot do (`left`), as text.

    `drops`: the keys of damaged records that are dropped; a record that is whole stays."""

    container: int
    path: str
    changes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    drops: set[bytes] = field(default_factory=set)
    puts: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Known:
    """The facts in the records that are whole."""

    keys: set[bytes] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    segments: dict[int, str] = field(default_factory=dict)
    damaged: list[Row] = field(default_factory=list)

    def add(self, key: bytes, stored: bytes) -> None:
        value = unseal(key, stored)
        if key[:1] == keys.NAME:
            self.names[keys.parse_name_key(key)] = keys.parse_id_value(value)
        elif key[:1] == keys.SEGMENT:
            number = keys.parse_segment_key(key)
            try:
                self.segments[number] = load_segment(number, value).name
            except Corrupt:  # of another format: it exists, and only its own version of Sarit knows its name
                self.segments[number] = ""


def plan_repair(env: Env, container: int, path: str) -> Plan:
    """Plan the repair of an index.  Blocking; changes nothing.  Raises OSError."""
    plan = Plan(container, path)
    if not env.files.exists(path):
        finish = _interrupted(env.files, path)
        (plan.changes if finish else plan.left).append(
            "an earlier repair was interrupted: its new index gets its name" if finish else f"{path} is missing"
        )
        return plan
    try:
        with closing(connect(path)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            check_files(env.files, path)
            check_schema(connection, path)
            check_structure(connection, path)
            known = _read(connection)
    except (Corrupt, sqlite3.Error, UnicodeDecodeError) as error:
        plan.left.append(f"{error}: restore index and log of this container from one backup")
        return plan
    _plan_damaged(plan, known)
    _plan_names(plan, known)
    return plan


def _rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield all rows in the order of their pages, which need not be that of their keys."""
    cursor = connection.execute("SELECT k, v FROM entries")
    while rows := cursor.fetchmany(_ROWS_PER_STEP):
        yield from rows


def _read(connection: sqlite3.Connection) -> _Known:
    known, before, ordered = _Known(), b"", True
    for key, stored in _rows(connection):
        if not isinstance(key, bytes):
            raise Corrupt(f"a key is no bytes: {repr(key)[:200]}")
        ordered = ordered and key >= before
        before = key
        try:
            known.add(key, stored)
        except Corrupt:
            known.damaged.append((key, stored))
    if not ordered and not known.damaged:
        raise Corrupt("keys are out of order, and every record is whole")
    # Only those that a repaired record could collide with.
    wanted = {right[0] for key, stored in known.damaged if (right := right_record(key, stored)) is not None}
    for key in wanted:
        # Found under its right key: the damaged one is not that record.
        if connection.execute("SELECT 1 FROM entries WHERE k=?", (key,)).fetchone():
            known.keys.add(key)
    return known


def _plan_damaged(plan: Plan, known: _Known) -> None:
    unknown: list[Row] = []
    for key, stored in known.damaged:
        right = right_record(key, stored)
        if right is None or (right[0] != key and right[0] in known.keys):
            unknown.append((key, stored))
            continue
        plan.drops.add(key)
        plan.puts[right[0]] = right[1]
        known.add(*right)
        plan.changes.append(f"put back the record of {keys.describe(right[0])}: one bit of it is flipped")
    ids = set(known.segments) | set(known.names.values())
    for key, _ in unknown:
        number = int.from_bytes(key[1:9], "big")
        if key[:1] == keys.GARBAGE or key.startswith(_TO_DELETE):
            plan.changes.append(f"drop the record of {keys.describe(key)}: it only says that something can be deleted")
            plan.drops.add(key)
        elif key[:1] in keys.PER_SEGMENT and number not in ids:
            plan.changes.append(f"drop the record of {keys.describe(key)}: there is no such segment")
            plan.drops.add(key)
        else:
            plan.left.append(f"the record of {keys.describe(key)} is damaged in more than one bit")


def _plan_names(plan: Plan, known: _Known) -> None:
    for number, name in known.segments.items():
        if not name or known.names.get(name) == number:
            continue
        if name in known.names:
            plan.left.append(f"two segments have the name {name}: ids {number} and {known.names[name]}")
            continue
        key = keys.name_key(name)
        plan.puts[key] = seal(key, keys.id_value(number))
        plan.drops.add(key)
        plan.changes.append(f"make the name of segment {name} from its record")


# -- the new file -------------------------------------------------------------------------------


def apply(env: Env, plan: Plan, progress: Callable[[int], None]) -> None:
    """Write the repaired index, and put it in the place of the damaged one.  Blocking.

    Raises Invalid (there is no space for it), OSError, sqlite3.Error; the damaged index is in place then."""
    files, path = env.files, plan.path
    if files.exists(path):
        with closing(files.open(path, "read")) as file:
            size = file.size()
        if files.free_bytes(path.rpartition("/")[0]) < 2 * size:
            raise Invalid(f"the new index needs {2 * size} bytes of free disk")
        _write_new(files, plan, progress)
        damaged = _free_name(files, path)
        # The database first: without it the container does not open, whatever else is in place.
        for suffix in _SUFFIXES:
            if files.exists(f"{path}{suffix}"):
                files.rename(f"{path}{suffix}", f"{damaged}{suffix}")
        files.sync_dir(path.rpartition("/")[0])
    files.rename(_new_name(path), path)
    files.sync_dir(path.rpartition("/")[0])


def _write_new(files: Files, plan: Plan, progress: Callable[[int], None]) -> None:
    new = _new_name(plan.path)
    for suffix in _SUFFIXES:
        if files.exists(f"{new}{suffix}"):  # of an attempt that was interrupted
            files.remove(f"{new}{suffix}")
    opened = open_writer(new, files, INDEX_CACHE_BYTES)
    with closing(connect(plan.path)) as old, closing(opened.connection) as connection:
        connection.execute("BEGIN IMMEDIATE")
        (epoch,) = old.execute("SELECT epoch FROM owner").fetchone()
        connection.execute("UPDATE owner SET epoch=?", (epoch,))
        for key, stored in _rows(old):
            # A flipped bit may have given a record the key of another one, which is whole.
            if key not in plan.drops or is_whole(key, stored):
                connection.execute("INSERT INTO entries VALUES (?,?)", (key, stored))
            progress(len(key) + len(stored))
        connection.executemany("INSERT INTO entries VALUES (?,?)", plan.puts.items())
        # Durable: SQLite syncs the WAL here, and the database when the connection closes.
        connection.execute("COMMIT")


def _new_name(path: str) -> str:
    return f"{path}.repaired"


def _free_name(files: Files, path: str) -> str:
    number, name = 1, f"{path}.damaged"
    while any(files.exists(f"{name}{suffix}") for suffix in _SUFFIXES):
        number, name = number + 1, f"{path}.damaged-{number + 1}"
    return name


def _interrupted(files: Files, path: str) -> bool:
    """Return whether a repair had finished its new file and moved the damaged one away."""
    return files.exists(_new_name(path)) and files.exists(f"{path}.damaged")


__all__ = ["Plan", "apply", "plan_repair"]
