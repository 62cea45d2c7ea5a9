"""The schema registry on the tables of a store, in its process and over connections: the same as on those in memory."""

from __future__ import annotations

import asyncio
import random

import pytest

from sarit.core.errors import SaritError
from tests.contract.test_controller_ports import ports_of
from tests.limits import HANG_SECONDS
from tests.unit.registry.model import Model, carry_out, drawn, expected, shown
from tests.unit.registry.world import registry

CALLS = 80


@pytest.mark.parametrize("kind", ["in process", "remote"])
@pytest.mark.parametrize("seed", range(2))
def test_registry_on_a_store_does_what_the_model_does(kind, seed) -> None:
    async def test() -> None:
        async with asyncio.timeout(HANG_SECONDS), ports_of(kind) as ports:
            chance, model, real = random.Random(seed), Model(), registry(ports.tables)
            for step in range(CALLS):
                call = drawn(chance, model)
                model, wanted = expected(model, call)
                try:
                    got = await carry_out(real, call)
                except SaritError as error:
                    got = type(error)
                assert got == wanted, (step, call)
                assert await shown(registry(ports.tables), model) == model.shows(), (step, call)

    asyncio.run(test())
