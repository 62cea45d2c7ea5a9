"""The schema registry of a link: equal groups, versions and ids; read-only until it is promoted, then in a range of its
own."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.core.links import LinkDirection, LinkSettings
from sarit.mirror.attached_copy import AttachedCopy
from sarit.mirror.attachments import NO_POSITION, TableChanges, TableWrite
from sarit.mirror.table_source import REGISTRY
from sarit.mirror.values import MirrorStatus
from sarit.registry.errors import ReadOnly
from sarit.registry.keys import MIRROR, REGISTRY_TABLE
from sarit.registry.registry import Registry
from sarit.registry.values import GroupName, Reference
from tests.limits import HANG_SECONDS
from tests.unit.mirror.installations import LINK, Side, installation
from tests.unit.registry.world import avro, registry_env, using

SETTINGS = LinkSettings(LinkDirection.PUSH, "core:9090")
ORDERS, USERS = GroupName("", "orders"), GroupName("tenant", "users")
RAISED = 1_000_000


@asynccontextmanager
async def edge_and_core():
    edge, core = await installation("edge", 1), await installation("core", 2)
    try:
        yield edge, core
    finally:
        await edge.stop()
        await core.stop()


def run(test):
    async def main():
        async with asyncio.timeout(HANG_SECONDS), edge_and_core() as (edge, core):
            await test(edge, core)

    asyncio.run(main())


def registry_of(side, seed=1):
    return Registry(side.controller.catalog.tables, registry_env(seed), side.name)


async def copy(edge, core, copier=None, link=LINK):
    copier = copier or AttachedCopy()
    return await copier.copy(Side(edge.attached_source), Side(core.attached_target), link, SETTINGS, "_system", [])


async def comparison(edge, core):
    facts = await edge.attached_source.tables("_system", "")
    (state,) = await core.attached_target.begin_tables(LINK, "_system", facts)
    return state.partitions[0].comparison


async def content(registry):
    """All that users see of a registry."""
    found = {}
    for name in await registry.groups(None, deleted=True):
        group = await registry.group(name)
        versions = await registry.versions(name, deleted=True)
        found[name] = group, [(one, await registry.schema(one.schema)) for one in versions]
    return found


async def fill(registry):
    await registry.register(ORDERS, avro("a"))
    await registry.register(ORDERS, avro("a", b=1))
    await registry.register(USERS, avro("a", name="User"))
    await registry.register(GroupName("", "later"), using("Later", Reference("Order", "orders", 2)))
    await registry.delete_version(ORDERS, 1)


def test_the_mirror_of_a_registry_has_its_groups_versions_and_ids_and_takes_no_change():
    async def test(edge, core):
        await fill(registry_of(edge))
        copier = AttachedCopy()
        assert await copy(edge, core, copier) == []
        mine = registry_of(core)
        assert await content(mine) == await content(registry_of(edge))
        assert len(await content(mine)) == 3
        for change in (
            mine.register(ORDERS, avro("a", b=1, z=2)),
            mine.delete_group(ORDERS),
            mine.set_mode(ORDERS, None),
        ):
            with pytest.raises(ReadOnly, match="sarit link promote"):
                await change
        before = await comparison(edge, core)
        await registry_of(edge).register(ORDERS, avro("a", b=1, c=2))
        await registry_of(edge).delete_group(USERS)
        await registry_of(edge).delete_group(USERS, permanent=True)
        assert await copy(edge, core, copier) == []
        assert await content(registry_of(core)) == await content(registry_of(edge))
        assert await comparison(edge, core) == before  # the changes were followed

    run(test)


def test_a_promoted_registry_gives_ids_that_its_source_never_gives():
    async def test(edge, core):
        await fill(registry_of(edge))
        await copy(edge, core)
        (state,) = await core.attached_target.promote_attached(LINK, "_system")
        assert (state.status, state.reason) == (MirrorStatus.PROMOTED, "")
        again = await registry_of(core).register(ORDERS, avro("a", b=1))
        new = await registry_of(core).register(ORDERS, avro("a", b=1, d=3))
        there = await registry_of(edge).register(ORDERS, avro("a", b=1, e=4))
        assert again.id == 2
        assert there.id == 5
        assert (new.id, new.version) == (5 + RAISED, there.version + RAISED)
        (problem,) = await copy(edge, core)
        assert "promoted" in problem.text
        assert (await registry_of(core).schema(new.id)).id == new.id

    run(test)


def test_a_registry_with_schemas_of_its_own_is_refused_by_name():
    async def test(edge, core):
        await fill(registry_of(edge))
        await registry_of(core).register(ORDERS, avro("mine"))
        (problem,) = await copy(edge, core)
        assert "has schemas of its own" in problem.text
        assert len(await content(registry_of(core))) == 1

    run(test)


def test_a_registration_at_the_moment_of_the_beginning_is_not_lost():
    """It either comes before, so that the registry is no mirror, or is refused."""

    async def test(edge, core):
        await fill(registry_of(edge))
        mine = registry_of(core)
        for turns in range(30):
            core2 = await installation(f"core{turns}", turns + 3)
            mine = registry_of(core2)

            async def register(turns=turns, mine=mine):
                for _ in range(turns):
                    await asyncio.sleep(0)
                return await mine.register(ORDERS, avro("mine"))

            registering = asyncio.ensure_future(register())
            problems = await copy(edge, core2)
            try:
                mine_at = (await registering).id
            except ReadOnly:
                assert problems == []
                assert await content(mine) == await content(registry_of(edge))
            else:
                assert problems
                assert (await mine.schema(mine_at)).id == mine_at
                assert len(await content(mine)) == 1
            await core2.stop()

    run(test)


def test_whoever_reads_the_mirror_during_a_comparison_finds_all_that_a_row_names():
    async def test(edge, core):
        source, mine, done = registry_of(edge), registry_of(core, 2), []

        async def grow():
            try:
                await source.register(ORDERS, avro("a"))
                for number in range(40):
                    await source.register(GroupName("", f"g{number}"), using("R", Reference("Order", "orders", 1)))
                    if number % 7 == 0:
                        edge.store.container(REGISTRY_TABLE).state.feeds.__init__()  # so that it is compared again
                    await asyncio.sleep(0)
            finally:
                done.append(True)

        async def read():
            while not done:
                for group, versions in (await content(mine)).values():
                    assert versions, f"group {group.name} names versions that are not there"
                await asyncio.sleep(0)

        working = asyncio.gather(grow(), read())
        while not done:
            await copy(edge, core)
            await asyncio.sleep(0)
        await working
        await copy(edge, core)
        assert await content(registry_of(core, 3)) == await content(registry_of(edge))

    run(test)


HOSTILE = {
    "the row that says whether it is a mirror": (MIRROR, b"\1"),
    "a row of no registry": (b"q/1", b"\1{}"),
    "counters that are none": (b"n", b"\1{}"),
    "a group without fields": (b"g/\0orders", b"\1{}"),
    "another format": (b"g/\0orders", b"\2{}"),
    "a schema without a head": (b"s/0000000000000001/00000000", b"text"),
    "a version of no number": (b"v/\0orders\0x", b"\1{}"),
    "an encoding without parts": (b"e/1", b"\1{}"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_rows_that_no_registry_has_are_refused(what):
    async def test(edge, core):
        await fill(registry_of(edge))
        facts = await edge.attached_source.tables("_system", "")
        await core.attached_target.begin_tables(LINK, "_system", facts)
        state = await core.attached_target.compare_table(LINK, "_system", REGISTRY, 0)
        changes = TableChanges(REGISTRY, 0, NO_POSITION, 0, (HOSTILE[what],))
        with pytest.raises(Invalid):
            await core.attached_target.write_table(LINK, "_system", TableWrite(changes, state.partitions[0]))
        assert set(await core.rows(REGISTRY_TABLE)) == {MIRROR}

    run(test)


@pytest.mark.parametrize(
    "wrong",
    [{"partitions": 2, "positions": (0, 0)}, {"primary_key_length": 5}, {"creation_id": b"short"}, {"path": ()}],
)
def test_facts_that_no_registry_has_are_refused(wrong):
    async def test(edge, core):
        await fill(registry_of(edge))
        (facts,) = await edge.attached_source.tables("_system", "")
        with pytest.raises(Invalid):
            await core.attached_target.begin_tables(LINK, "_system", [replace(facts, **wrong)])

    run(test)
