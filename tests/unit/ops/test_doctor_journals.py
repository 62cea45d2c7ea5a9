"""What `sarit doctor` says of the configuration of bookies: one that acknowledges without a sync, auto recovery."""

from __future__ import annotations

import pytest

from sarit.ops.doctor import check_auto_recovery, check_journals

SYNCS = ("a:1", {"journalDirectories": "/j", "journalSyncData": "true"})
DEFAULT = ("b:1", {"bookiePort": "1"})


@pytest.mark.parametrize(
    ("bookies", "level", "text"),
    [
        ([SYNCS, DEFAULT], "OK", "2 bookies sync before they acknowledge"),
        ([SYNCS, ("c:1", None)], "WARN", "these do not say whether they sync: c:1"),
        ([("c:1", None), ("d:1", {"journalSyncData": "False"})], "FAIL", "d:1 (journalSyncData=false)"),
        ([SYNCS, ("d:1", {"journalWriteData": False})], "FAIL", "d:1 (journalWriteData=false)"),
    ],
)
def test_bookies_that_do_not_sync_are_named(bookies, level, text):
    found = check_journals(bookies)
    assert found.level == level
    assert text in found.text
    assert bool(found.advice) == (level != "OK")


def test_bookies_with_auto_recovery_inside_are_named():
    assert check_auto_recovery([SYNCS, DEFAULT, ("c:1", None), ("d:1", {"autoRecoveryDaemonEnabled": "false"})]) == []
    (found,) = check_auto_recovery([SYNCS, ("d:1", {"autoRecoveryDaemonEnabled": "true"})])
    assert (found.level, found.text[-4:]) == ("WARN", " d:1")
