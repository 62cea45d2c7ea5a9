"""What a backup leaves behind when it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sarit.backup import create
from sarit.backup.create import create_from
from sarit.backup.node_connection import TryAgain
from sarit.backup.place import open_place
from sarit.core.errors import Unavailable
from sarit.env.real import real_env

CONTAINERS = 3


class Silent:
    def begin(self, label, length): ...

    def add(self, length): ...


class Store:
    """A store that does all that it is asked for."""

    containers = frozenset(range(CONTAINERS))

    async def ask(self, timeout_seconds, **message):
        return {"frame": 1, "held_ms": 0}

    async def close(self): ...


def _write(path):
    Path(path).write_text("a copy")


class Snapshot:
    def __init__(self, number, fails):
        self.closed = False
        self._fails = number == fails

    async def copy(self, target, progress):
        _write(target)
        if self._fails:
            raise Unavailable("no answer")

    async def close(self):
        self.closed = True


class Source:
    """An installation, the copy of whose index `fails` fails."""

    node = "n" * 32
    containers = CONTAINERS
    places = ()

    def __init__(self, folder, fails):
        self.storage_url = f"file://{folder}/chunks"
        self.work = f"{folder}/work"
        self.snapshots = []
        self._fails = fails

    async def connect(self):
        return [Store()]

    def indexes(self, worker):
        return self

    async def snapshot(self, number, frame):
        self.snapshots.append(Snapshot(number, self._fails))
        return self.snapshots[-1]


def test_backup_that_fails_ends_every_snapshot(tmp_path):
    async def main():
        source = Source(tmp_path, fails=1)
        (tmp_path / "work").mkdir()
        (tmp_path / "work/index-of-mine").touch()
        with pytest.raises(Unavailable, match="no answer"):
            await create_from(real_env(), source, f"{tmp_path}/place", 0, Silent())
        assert [each.closed for each in source.snapshots] == [True] * CONTAINERS
        assert [path.name for path in (tmp_path / "work").iterdir()] == ["index-of-mine"], "its copies are removed"

    asyncio.run(main())


def test_backup_that_finds_a_prune_in_its_place_ends_every_snapshot(tmp_path):
    async def main():
        source = Source(tmp_path, fails=None)
        place = await open_place(real_env(), f"{tmp_path}/place", create=True)
        await place.claim(source.node)
        await place.lock("prune")
        with pytest.raises(Unavailable, match="a prune of .* runs, or was killed"):
            await create_from(real_env(), source, f"{tmp_path}/place", 0, Silent())
        await place.close()
        assert [each.closed for each in source.snapshots] == [True] * CONTAINERS

    asyncio.run(main())


def test_backup_whose_stores_cannot_be_reached_says_so_at_each_attempt(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(create, "ATTEMPT_PAUSE_SECONDS", 0)

    async def away():
        raise TryAgain("the store is away")

    async def main():
        source = Source(tmp_path, fails=None)
        source.connect = away
        with pytest.raises(Unavailable, match=r"the store is away \(tried 5 times\)"):
            await create_from(real_env(), source, f"{tmp_path}/place", 0, Silent())

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        f"the backup begins again with another moment (attempt {number}): the store is away" for number in range(2, 6)
    ]
    assert not (tmp_path / "place").exists()
