"""What a backup leaves behind when it fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sarit.core.errors import Unavailable
from sarit.env.real import real_env
from sarit.ops.backup import create
from sarit.ops.backup.create import create_from
from sarit.ops.backup.node_connection import Refused, TryAgain
from sarit.ops.backup.place import open_place

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
            raise Refused("no answer")

    async def close(self):
        self.closed = True


class Source:
    """An installation, the copy of whose index `fails` fails, with an error that nobody repeats."""

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


class Clock:
    """A clock that pauses move, and nothing else."""

    def __init__(self, clock):
        self.now = 0.0
        self.pauses = []
        self.wall_ms = clock.wall_ms

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


# It was five attempts in half a minute, and one where storage or ZooKeeper was away.
@pytest.mark.parametrize("error", [TryAgain("the store is away"), Unavailable("the store is away")])
@pytest.mark.parametrize(("wait", "pauses"), [
    (0, [1, 2, 4, 8]), (100, [1, 2, 4, 8, 16, 30, 30, 9]),
])  # fmt: skip
def test_backup_keeps_trying_with_growing_pauses(tmp_path, monkeypatch, caplog, error, wait, pauses):
    env = real_env()
    clock = Clock(env.clock)
    monkeypatch.setattr(create, "asyncio", SimpleNamespace(sleep=clock.sleep))

    async def away():
        raise error

    async def main():
        source = Source(tmp_path, fails=None)
        source.connect = away
        tried = len(pauses) + 1
        with pytest.raises(Unavailable, match=rf"the store is away \(tried {tried} times in {sum(pauses)} s\)"):
            await create_from(replace(env, clock=clock), source, f"{tmp_path}/place", 0, Silent(), wait)

    asyncio.run(main())
    assert clock.pauses == pauses
    assert [record.getMessage() for record in caplog.records] == [
        f"the backup begins again with another moment in {pause} s (attempt {number}): the store is away"
        for number, pause in enumerate(pauses, 2)
    ]
    assert not (tmp_path / "place").exists()


def test_backup_goes_on_when_storage_is_back_and_notifies_the_stores(tmp_path, monkeypatch):
    env = real_env()
    clock, asked = Clock(env.clock), []
    monkeypatch.setattr(create, "asyncio", SimpleNamespace(sleep=clock.sleep))
    outages = [Unavailable("S3 answers 503") for _ in range(12)]

    async def moment(self, stores):
        if outages:
            raise outages.pop()
        return "manifest"

    class Notified(Store):
        async def ask(self, timeout_seconds, **message):
            asked.append(message)
            return await super().ask(timeout_seconds, **message)

    async def connect():
        return [Notified()]

    async def main():
        monkeypatch.setattr(create._Backup, "_work", moment)
        source = Source(tmp_path, fails=None)
        source.connect = connect
        found = await create_from(replace(env, clock=clock), source, f"{tmp_path}/place", 0, Silent())
        assert found == "manifest"

    asyncio.run(main())
    assert len(clock.pauses) == 12
    assert asked[-1] == {"complete": True}
    assert asked.count({"complete": True}) == 1
