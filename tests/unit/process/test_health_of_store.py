"""What a store says of itself."""

import asyncio

import pytest

from sarit.process.observation import health
from tests.unit.store.harness import World, Writer

NAME = "s/t/0.#epoch.0"


@pytest.mark.parametrize(("bound", "codes"), [(0.0, ["log-away"]), (1000.0, [])])
def test_append_that_waits_longer_than_its_bound_is_a_reason_until_it_is_durable(monkeypatch, bound, codes):
    async def main():
        monkeypatch.setattr(health, "LOG_AWAY_SECONDS", bound)
        world = World()
        store = await world.start()
        container = store.container(NAME)
        await container.create(NAME)
        writer = Writer(store, NAME)
        await writer.set_up()
        assert health.reasons_of_store(store) == []
        world.logs.hold_appends = True
        writer.append(b"x", 1)
        while container.group_commit.waiting_seconds == 0:
            await asyncio.sleep(0)
        found = health.reasons_of_store(store)
        assert [reason.code for reason in found] == codes
        assert not any(reason.ready for reason in found)
        assert all(reason.part == f"container {container.number}" for reason in found)
        world.logs.hold_appends = False
        await writer.wait_for_replies()
        assert health.reasons_of_store(store) == []
        await store.stop()

    asyncio.run(main())
