"""A table on an object store that fails and loses replies: each event is in it once, and every file can be read."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from sarit.core.errors import Unavailable
from sarit.lake.catalogs import Catalogs
from sarit.lake.pyiceberg_tables import PyIcebergTables
from tests.contract.s3 import s3_server
from tests.contract.s3_proxy import Proxy, counting
from tests.unit.lake.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS = 4


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Proxy, Catalogs]]:
    with s3_server(tmp_path) as server, counting(server) as (proxy, seen):
        environ = seen.environ
        properties = {
            "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"s3://{server.bucket}/lake",
            "s3.endpoint": seen.endpoint, "s3.region": environ["AWS_REGION"],
            "s3.access-key-id": environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": environ["AWS_SECRET_ACCESS_KEY"],
        }  # fmt: skip
        yield proxy, Catalogs({"lake": properties})


@pytest.mark.long  # two minutes, in which Arrow waits before it repeats requests
def test_object_store_that_fails_and_loses_replies(proxied: tuple[Proxy, Catalogs]) -> None:
    proxy, catalogs = proxied
    asyncio.run(run(proxy, catalogs))


async def run(proxy: Proxy, catalogs: Catalogs) -> None:
    chance = random.Random(5)
    world = World(5)
    failures: list[str] = []
    for turn in range(ROUNDS):
        for number in range(40):
            world.stream.append(b"bad" if chance.random() < 0.1 else b"%d" % (turn * 100 + number), number)
        committer = world.process(tables=PyIcebergTables(catalogs, "lake"))
        while committer.state.cut is None or committer.state.intent is not None or await world.behind(committer):
            # Arrow repeats a request up to three times: some faults last longer than that.
            kind, count = chance.choice(("", "error", "lost")), chance.choice((1, 8))
            proxy.faults[:] = [""] * chance.randrange(12) + [kind] * count
            try:
                await committer.step()
            except Unavailable as error:
                failures.append(str(error))
                committer = world.process(tables=PyIcebergTables(catalogs, "lake"))
    proxy.faults.clear()
    assert failures
    assert not [text for text in failures if "testsecret1" in text]
    table, dead = (PyIcebergTables(catalogs, "lake").load(("shop", name)) for name in ("orders", "orders__dlq"))
    assert table is not None
    assert dead is not None
    rows, letters = table.handle.scan().to_arrow(), dead.handle.scan().to_arrow()
    places = [(row["segment"], row["offset"]) for row in [*rows["sarit"].to_pylist(), *letters.to_pylist()]]
    assert len(places) == len(set(places)) == world.stream.written == ROUNDS * 40
    texts: list[Any] = [*rows["text"].to_pylist(), *(raw.decode() for raw in letters["raw"].to_pylist())]
    assert sorted(texts) == sorted(event.decode() for events in world.stream.events.values() for _, event in events)
