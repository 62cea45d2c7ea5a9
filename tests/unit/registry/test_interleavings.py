"""Two controllers that change one registry at the same time, in random orders, with calls that fail or are slow."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from sarit.core.errors import SaritError, Unavailable
from sarit.registry import changes, keys
from sarit.registry.errors import BadReference, Incompatible, NotThere, Referenced
from sarit.registry.values import GroupName, Reference
from sarit.schemas.compatibility import Level, policy_of
from sarit.wire.limits import NO_VERSION
from tests.limits import HANG_SECONDS, examples
from tests.unit.controller.fakes import FakeTables, Faults
from tests.unit.registry.world import ORDERS, avro, beside, registry, using

PAYMENTS = GroupName("", "payments-value")
ANY = policy_of(Level.NONE)


def slow(chance: random.Random, rate: float = 0.0) -> Faults:
    """Each call takes a random number of turns, and some are Unavailable, half of these after they took effect."""

    async def gate(_: int) -> None:
        for _ in range(chance.randint(0, 6)):
            await asyncio.sleep(0)

    def maybe(_: int, call: str) -> None:
        if chance.random() < rate:
            raise Unavailable(call)

    return Faults(maybe, maybe, gate=gate)


async def until_known(call):
    """Repeat a call that is safe to repeat until its outcome is known."""
    while True:
        try:
            return await call()
        except Unavailable:
            continue


async def race(seed: int, rate: float) -> None:
    """Registrars of two controllers register the same schemas in two groups; another process reads what there is."""
    chance = random.Random(seed)
    tables = FakeTables()
    both = [registry(beside(tables, slow(random.Random(seed + n), rate)), seed=seed + n) for n in range(2)]
    reader = registry(tables)
    await reader.set_policy(GroupName("", ""), ANY)
    answers: dict[str, set[int]] = defaultdict(set)
    places: dict[tuple[GroupName, int], set[int]] = defaultdict(set)

    async def registrar(number: int) -> None:
        own = both[number % 2]
        for _ in range(8):
            schema, name = avro(chance.choice("abcdefgh")), chance.choice([ORDERS, PAYMENTS])
            done = await until_known(lambda: own.register(name, schema))  # noqa: B023
            answers[schema.text].add(done.id)
            places[name, done.version].add(done.id)
            assert (await reader.version(name, done.version)).schema.id == done.id

    await asyncio.gather(*(registrar(number) for number in range(6)))
    ids = [next(iter(found)) for found in answers.values()]
    assert all(len(found) == 1 for found in answers.values()), "no two ids for one schema"
    assert len(set(ids)) == len(ids), "no id for two"
    assert all(len(found) == 1 for found in places.values()), "no version for two"
    for name in (ORDERS, PAYMENTS):
        versions = await reader.versions(name)
        assert [one.number for one in versions] == list(range(1, len(versions) + 1))
        assert len({one.schema for one in versions}) == len(versions)
    assert reader.counts is None or reader.counts.groups <= 2


@pytest.mark.parametrize("seed", range(examples(30)))
@pytest.mark.parametrize("rate", [0.0, 0.03])
def test_racing_registrars_agree(seed, rate) -> None:
    async def test():
        async with asyncio.timeout(HANG_SECONDS):
            await race(seed, rate)

    asyncio.run(test())


async def refer_and_delete(seed: int) -> None:
    """One controller registers a schema that refers to a version, while another one deletes that version."""
    tables = FakeTables()
    one, two = (registry(beside(tables, slow(random.Random(seed + n))), seed=seed + n) for n in range(2))
    await one.register(PAYMENTS, avro("a", name="Item"))
    referring = using("Order", Reference("Item", PAYMENTS.group, 1))
    done = await asyncio.gather(
        one.register(ORDERS, referring), two.delete_version(PAYMENTS, 1), return_exceptions=True
    )  # fmt: skip
    registered, deleted = (not isinstance(answer, SaritError) for answer in done)
    assert registered != deleted, done
    assert isinstance(done[0 if deleted else 1], BadReference if deleted else Referenced)


async def forbid_and_register(seed: int) -> None:
    """Of two incompatible schemas that are registered at the same time, the policy refuses one."""
    tables = FakeTables()
    both = [registry(beside(tables, slow(random.Random(seed + n))), seed=seed + n) for n in range(2)]
    done = await asyncio.gather(
        *(one.register(ORDERS, avro(field)) for one, field in zip(both, "ab", strict=True)), return_exceptions=True
    )
    assert sum(isinstance(answer, Incompatible) for answer in done) == 1, done


async def delete_and_register(seed: int) -> None:
    """A schema whose last version is deleted permanently while another group takes it keeps its id or gets a new one,
    and is read by it."""
    tables = FakeTables()
    one, two = (registry(beside(tables, slow(random.Random(seed + n))), seed=seed + n) for n in range(2))
    await one.register(ORDERS, avro("a"))
    await one.delete_group(ORDERS)

    async def register():
        for _ in range(random.Random(seed).randint(0, 60)):  # at any moment of the deletion
            await asyncio.sleep(0)
        return await two.register(PAYMENTS, avro("a"))

    done, _ = await asyncio.gather(register(), one.delete_group(ORDERS, permanent=True))
    fresh = registry(tables)
    assert (await fresh.version(PAYMENTS, done.version)).schema.id == done.id
    assert [holder.name for holder in await fresh.holders(done.id)] == [PAYMENTS]
    with pytest.raises(NotThere):
        await fresh.schema(3 - done.id)


@pytest.mark.parametrize("seed", range(examples(30)))
@pytest.mark.parametrize("case", [refer_and_delete, forbid_and_register, delete_and_register])
def test_changes_at_the_same_time_come_one_after_another(case, seed) -> None:
    async def test():
        async with asyncio.timeout(HANG_SECONDS):
            await case(seed)

    asyncio.run(test())


@pytest.mark.parametrize("case", [race, refer_and_delete, forbid_and_register, delete_and_register])
def test_ignored_conflict_is_seen(case, monkeypatch) -> None:
    real = changes.TableUpdate

    def unconditional(key, value, expected):
        return real(key, value, NO_VERSION if key == keys.COUNTERS else expected)

    monkeypatch.setattr(changes, "TableUpdate", unconditional)

    async def test():
        for seed in range(40):
            await (case(seed, 0.0) if case is race else case(seed))

    with pytest.raises((AssertionError, SaritError)):
        asyncio.run(test())


def test_changes_that_always_conflict_end() -> None:
    tables = FakeTables()

    async def test():
        await registry(tables).register(ORDERS, avro("a"))

        def touch(_: int, call: str) -> None:
            if call.startswith("tables.update"):  # another controller was faster, each time
                rows = tables.tables[keys.REGISTRY_TABLE]
                found = rows[keys.COUNTERS]
                rows[keys.COUNTERS] = type(found)(found.value, found.version + 1)

        made = registry(beside(tables, Faults(touch)))
        made._changes._random = Zero()
        with pytest.raises(Unavailable, match="too many others"):
            await made.register(ORDERS, avro("a", b=0))
        assert len(await registry(tables).versions(ORDERS)) == 1

    asyncio.run(test())


class Zero:
    def random(self) -> float:
        return 0.0


def test_comparison_is_made_again_when_the_group_has_changed() -> None:
    tables = FakeTables()

    async def test():
        one, two = registry(tables), registry(beside(tables))
        await one.register(ORDERS, avro("a"))
        parse = one._parser.reasons

        async def overtaken(*arguments):
            found = await parse(*arguments)
            if not overtaken_by:
                overtaken_by.append(await two.register(ORDERS, avro("a", c=0)))
                await two.set_policy(ORDERS, policy_of(Level.FULL_TRANSITIVE))
            return found

        overtaken_by: list[object] = []
        one._parser.reasons = overtaken
        with pytest.raises(Incompatible):
            await one.register(ORDERS, avro("b", a=0))

    asyncio.run(test())
