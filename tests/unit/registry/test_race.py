"""Controllers that change the registry at the same moment: each answer is of a change that was made."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.controller.fakes import FakeTables
from tests.unit.registry.world import ORDERS, avro, beside, registry


@pytest.mark.parametrize("controllers", [2, 5])
def test_controllers_that_register_at_once_give_different_ids_and_versions(controllers: int) -> None:
    tables = FakeTables()

    async def test() -> None:
        made = [registry(beside(tables), seed=number) for number in range(controllers)]
        schemas = [avro(**{f"f{number}": 0}) for number in range(3 * controllers)]
        found = await asyncio.gather(
            *(made[number % controllers].register(ORDERS, schema) for number, schema in enumerate(schemas))
        )
        assert len({one.id for one in found}) == len(schemas)
        assert sorted(one.version for one in found) == list(range(1, len(schemas) + 1))
        versions = await made[0].versions(ORDERS)
        assert {(one.schema, one.number) for one in versions} == {(one.id, one.version) for one in found}

    asyncio.run(test())


def test_controllers_that_register_one_schema_at_once_give_one_id() -> None:
    tables = FakeTables()

    async def test() -> None:
        made = [registry(beside(tables), seed=number) for number in range(4)]
        found = await asyncio.gather(*(each.register(ORDERS, avro("a")) for each in made))
        assert {(one.id, one.version) for one in found} == {(1, 1)}
        assert [one.new for one in found].count(True) == 1

    asyncio.run(test())
