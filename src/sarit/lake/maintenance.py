"""Maintenance of a stream's table: old snapshots are removed, and the files that only they refer to.

*Which snapshots*: those older than a time, and what is more than MAX_SNAPSHOTS_KEPT of them.  The newest one of each
branch and tag stays, and the nearest ancestor of that which says what cut of the stream it holds (`cuts.py`): whoever
reads the table, or goes on committing to it, finds a cut that a snapshot vouches for.

*Which files*: PyIceberg removes snapshots from the metadata and leaves all files.  Here the manifest lists of removed
snapshots are deleted, and manifests that no snapshot refers to any more.  Data files are deleted only where somebody
has rewritten some, as Spark's `rewrite_data_files` does: a table to which all snapshots only append refers to each data
file for ever.  What is deleted is found in the metadata *after* the removal was committed: a snapshot that is there
then keeps its files.  If the process dies in between, files are left that `remove_orphan_files` of Spark finds.

Small data files are not joined here: `CALL system.rewrite_data_files` of Spark's Iceberg does that.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Unavailable
from sarit.lake.catalogs import open_catalog
from sarit.lake.cuts import CUT_TO
from sarit.lake.limits import EXPIRED_SNAPSHOTS_AT_ONCE, MAX_SNAPSHOTS_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.table import Table

    from sarit.lake.catalogs import Catalogs
    from sarit.lake.settings import IcebergSettings

_log = logging.getLogger("sarit.lake")
_MS_PER_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Aged:
    """A snapshot, as far as its removal is decided by it.  `has_cut`: it says what cut of the stream it holds."""

    id: int
    parent: int | None
    made_ms: int
    has_cut: bool


@dataclass(frozen=True, slots=True)
class Expired:
    """The outcome of one round of maintenance: how many snapshots were removed, and how many files were deleted."""

    snapshots: int = 0
    files: int = 0


def expirable(snapshots: Sequence[Aged], heads: Iterable[int], before_ms: int) -> list[int]:
    """Return the ids of the snapshots that are to be removed, oldest first: those from before a time, and the oldest of
    more than MAX_SNAPSHOTS_KEPT.  `heads`: the newest ones of branches and tags."""
    by_id = {snapshot.id: snapshot for snapshot in snapshots}
    kept = set[int]()
    for head in heads:
        at: int | None = head
        while at in by_id and at not in kept:
            kept.add(at)
            if by_id[at].has_cut:
                break
            at = by_id[at].parent
    by_age = sorted(snapshots, key=lambda snapshot: snapshot.made_ms)
    too_many = len(by_age) - MAX_SNAPSHOTS_KEPT
    return [s.id for at, s in enumerate(by_age) if (s.made_ms < before_ms or at < too_many) and s.id not in kept]


def expire(table: Table, before_ms: int) -> Expired:
    """Remove the snapshots from before a time, EXPIRED_SNAPSHOTS_AT_ONCE at most, and their files.  Blocks.

    Raises what PyIceberg raises: nothing was removed, or files of removed snapshots are left."""
    metadata = table.refresh().metadata  # a tag that is not seen here goes with its snapshot
    found = [_aged(snapshot) for snapshot in metadata.snapshots]
    ids = expirable(found, {ref.snapshot_id for ref in metadata.refs.values()}, before_ms)
    ids = ids[:EXPIRED_SNAPSHOTS_AT_ONCE]
    if not ids:
        return Expired()
    table.maintenance.expire_snapshots().by_ids(ids).commit()
    kept = table.refresh().metadata.snapshots
    remaining = {snapshot.snapshot_id for snapshot in kept}
    gone = [s for s in metadata.snapshots if s.snapshot_id in set(ids) - remaining]
    files = _unreferenced(table.io, gone, kept)
    for path in files:
        try:
            table.io.delete(path)
        except Exception as error:  # the file is an orphan from now on
            _log.info("%s cannot be deleted: %s", path.rpartition("/")[2], type(error).__name__)
    return Expired(len(gone), len(files))


def expire_tables(catalogs: Catalogs, settings: IcebergSettings, now_ms: int) -> Expired:
    """Expire the snapshots of a stream's table and of its dead letters, as the settings say.  Blocks.

    Returns what was done to the table.  Raises Invalid, Unavailable."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    before_ms = now_ms - settings.expire_after_seconds * _MS_PER_SECOND
    done = Expired()
    with closing(open_catalog(catalogs, settings.catalog)) as catalog:
        for name in (settings.dead_letters, settings.identifier):
            try:
                done = expire(catalog.load_table(name), before_ms)
            except (NoSuchTableError, NoSuchNamespaceError):
                continue
            except Exception as error:
                text = catalogs.hide(f"{type(error).__name__}: {error}")
                raise Unavailable(
                    f"snapshots of table {settings.catalog}.{'.'.join(name)} cannot be removed: {text}"
                ) from None
    return done


def _aged(snapshot: Any) -> Aged:
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return Aged(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.timestamp_ms, CUT_TO in summary)


def _unreferenced(io: Any, gone: Sequence[Any], kept: Sequence[Any]) -> list[str]:
    """Return the files that only removed snapshots refer to."""
    manifests = {manifest.manifest_path: manifest for snapshot in kept for manifest in snapshot.manifests(io)}
    dropped = {
        manifest.manifest_path: manifest
        for snapshot in gone
        for manifest in snapshot.manifests(io)
        if manifest.manifest_path not in manifests
    }
    files = {snapshot.manifest_list for snapshot in gone} - {snapshot.manifest_list for snapshot in kept}
    if any(_has_rewritten(snapshot) for snapshot in (*gone, *kept)):
        live = _data_files(io, manifests.values(), live=True)
        files |= _data_files(io, dropped.values(), live=False) - live
    return sorted(files | set(dropped))


def _has_rewritten(snapshot: Any) -> bool:
    return snapshot.summary is None or snapshot.summary.operation.value != "append"


def _data_files(io: Any, manifests: Iterable[Any], *, live: bool) -> set[str]:
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=live)
    }
