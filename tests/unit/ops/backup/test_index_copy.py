"""Copies of an index beside the store that writes to it."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Unavailable
from sarit.env.real import real_env
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.index.sqlite import SqliteIndexProvider
from sarit.ops.backup import index_copy
from sarit.ops.backup.index_copy import IndexSnapshot

FRAME = 7
ROWS = 2000


@pytest.fixture
def index(tmp_path):
    """The file of an index of many pages."""

    async def main():
        made = await SqliteIndexProvider(real_env(), str(tmp_path)).open(0)
        rows = {b"e%05d" % number: bytes(200) for number in range(ROWS)}
        await made.commit(WriteBatch(rows | {keys.meta_key("frame"): keys.attribute_value(FRAME)}))
        await made.close()

    asyncio.run(main())
    (path,) = tmp_path.glob("*.db")
    return path


def test_copy_that_is_stopped_ends_after_a_step(index, tmp_path, monkeypatch):
    monkeypatch.setattr(index_copy, "SQLITE_PAGES_PER_STEP", 1)
    snapshot = IndexSnapshot(str(index), FRAME)
    steps = []

    def progress(length):
        steps.append(length)
        if len(steps) == 5:
            snapshot.stop()

    with pytest.raises(Unavailable, match="was stopped"):
        snapshot.copy(real_env().files, str(tmp_path / "copy"), progress)
    assert len(steps) == 5
    snapshot.close()


def test_copy_reports_all_of_its_bytes_and_snapshot_of_another_frame_is_refused(index, tmp_path):
    with pytest.raises(Unavailable, match=f"shows frame {FRAME}, not {FRAME + 1}"):
        IndexSnapshot(str(index), FRAME + 1)
    snapshot = IndexSnapshot(str(index), FRAME)
    copied = []
    snapshot.copy(real_env().files, str(tmp_path / "copy"), copied.append)
    assert sum(copied) == (tmp_path / "copy").stat().st_size
    snapshot.close()
