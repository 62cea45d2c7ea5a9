"""The registry on tables in memory: what each call does and refuses."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Exists, Invalid
from sarit.registry.errors import (
    BadReference,
    Incompatible,
    Missing,
    NotDeleted,
    NotThere,
    PolicyChanged,
    ReadOnly,
    Referenced,
    WrongKind,
)
from sarit.registry.values import LATEST, Group, GroupName, Holder, Mode, NewSchema, Reference, Settings
from sarit.schemas.compatibility import Level, Policy, PolicyName, Till, policy_of
from sarit.schemas.definitions import Kind
from tests.unit.controller.fakes import FakeTables
from tests.unit.registry.world import ORDERS, avro, beside, registry, using

PAYMENTS = GroupName("", "payments-value")
ANY = policy_of(Level.NONE)
DENY = Policy(PolicyName.DENY_ALL)
PRIVATE = GroupName("", "private")


def run(coroutine):
    return asyncio.run(coroutine)


def missing(what):
    return pytest.raises(NotThere, check=lambda error: error.what is what)


@pytest.fixture
def made():
    return registry()


def test_schema_has_one_id_in_all_groups_and_one_version_in_each(made) -> None:
    async def test():
        first = await made.register(ORDERS, avro("a"))
        again = await made.register(ORDERS, NewSchema(Kind.AVRO, f" {avro('a').text} "))
        assert (first.id, first.version, first.new) == (1, 1, True)
        assert (again.id, again.version, again.new) == (1, 1, False)
        second = await made.register(ORDERS, avro("a", b=0))
        assert (second.id, second.version) == (2, 2)
        other = await made.register(PAYMENTS, avro("a"))
        assert (other.id, other.version, other.new) == (1, 1, True)
        assert await made.holders(1) == [Holder(ORDERS, 1, False), Holder(PAYMENTS, 1, False)]
        assert (await made.version(ORDERS, LATEST)).schema.id == 2
        assert [one.number for one in await made.versions(ORDERS)] == [1, 2]
        assert await made.groups("") == [ORDERS, PAYMENTS]
        assert (await made.find(ORDERS, avro("a"))).version.number == 1
        assert (await made.find_schema("", avro("a"))).id == 1
        assert (made.counts.schemas, made.counts.groups) == (2, 2)

    run(test())


def test_reads_without_a_table_are_empty_and_cost_one_request() -> None:
    tables = FakeTables()
    made = registry(tables)

    async def test():
        for read in (made.groups(""), made.namespaces(), made.settings(ORDERS)):
            before = len(tables.faults.calls)
            await read
            assert len(tables.faults.calls) == before + 1
        for read in (made.version(ORDERS, 1), made.versions(ORDERS), made.group(ORDERS), made.encodings.get(ORDERS, 0)):
            before = len(tables.faults.calls)
            with missing(Missing.GROUP):
                await read
            assert len(tables.faults.calls) == before + 1
        with missing(Missing.SCHEMA):
            await made.schema(1)
        assert tables.tables == {}

    run(test())


def test_policy_refuses_and_says_why(made) -> None:
    async def test():
        await made.register(ORDERS, avro("a"))
        with pytest.raises(Incompatible) as caught:
            await made.register(ORDERS, avro("a", "b"))
        assert "b" in " ".join(caught.value.reasons)
        assert await made.check(ORDERS, avro("a", "b")) == list(caught.value.reasons)
        assert await made.check(ORDERS, avro("a", b=0)) == []
        await made.set_policy(ORDERS, ANY)
        assert (await made.register(ORDERS, avro("a", "b"))).version == 2
        assert await made.check(PAYMENTS, avro("z")) == []

    run(test())


def test_transitive_policy_compares_with_every_version(made) -> None:
    async def test():
        await made.set_policy(ORDERS, ANY)
        for schema in (avro("a"), avro("a", "b"), avro("a", "b", "c")):
            await made.register(ORDERS, schema)
        assert await made.check(ORDERS, avro("a", "b", d=1), policy=policy_of(Level.BACKWARD)) == []
        every = await made.check(ORDERS, avro("a", "b", d=1), policy=policy_of(Level.BACKWARD_TRANSITIVE))
        assert len(every) == 1
        assert "version 1" in every[0]
        till = Policy(PolicyName.ADVANCED, Till(2))
        assert await made.check(ORDERS, avro("a", "b", d=1), policy=till) == []
        backward = policy_of(Level.BACKWARD)
        assert await made.check(ORDERS, avro("a", "b", d=1), 1, policy=backward) != []
        assert await made.check(ORDERS, avro("a", "b", d=1), LATEST, policy=backward) == []

    run(test())


def test_softly_deleted_versions_do_not_count_for_the_policy(made) -> None:
    async def test():
        await made.set_policy(ORDERS, policy_of(Level.BACKWARD_TRANSITIVE))
        await made.register(ORDERS, avro("a"))
        await made.register(ORDERS, avro("a", b=0))
        await made.delete_version(ORDERS, 1)
        await made.delete_version(ORDERS, 2)
        assert (await made.register(ORDERS, avro("x"))).version == 3

    run(test())


def test_deletion_is_soft_and_then_permanent(made) -> None:
    async def test():
        await made.register(ORDERS, avro("a"))
        await made.register(ORDERS, avro("a", b=0))
        with pytest.raises(NotDeleted):
            await made.delete_version(ORDERS, 1, permanent=True)
        assert await made.delete_version(ORDERS, 1) == 1
        with missing(Missing.DELETED_VERSION):
            await made.delete_version(ORDERS, 1)
        with missing(Missing.VERSION):
            await made.version(ORDERS, 1)
        assert (await made.version(ORDERS, 1, deleted=True)).version.deleted
        assert (await made.schema(1)).type == "Order"
        assert await made.holders(1) == []
        again = await made.register(ORDERS, avro("a"))
        assert (again.id, again.version) == (1, 3), "a new version, with the old id"
        assert await made.delete_version(ORDERS, 1, permanent=True) == 1
        assert await made.holders(1) == [Holder(ORDERS, 3, False)]
        assert await made.delete_version(ORDERS, LATEST) == 3
        assert (await made.version(ORDERS, LATEST)).version.number == 2
        assert await made.delete_version(ORDERS, 3, permanent=True) == 3
        with missing(Missing.SCHEMA):
            await made.schema(1)
        assert [one.number for one in await made.versions(ORDERS, deleted=True)] == [2]
        back = await made.register(ORDERS, avro("a"))
        assert (back.id, back.version) == (3, 4), "neither the id nor a version comes back"

    run(test())


def test_group_is_deleted_and_its_numbers_go_on(made) -> None:
    async def test():
        await made.register(ORDERS, avro("a"))
        await made.register(ORDERS, avro("a", b=0))
        assert await made.encodings.encode(ORDERS, 2, "") == 0
        with pytest.raises(NotDeleted):
            await made.delete_group(ORDERS, permanent=True)
        assert await made.delete_group(ORDERS) == [1, 2]
        with missing(Missing.DELETED_GROUP):
            await made.delete_group(ORDERS)
        assert await made.groups("") == []
        assert await made.groups("", deleted=True) == await made.groups("", only_deleted=True) == [ORDERS]
        with missing(Missing.GROUP):
            await made.versions(ORDERS)
        assert (await made.group(ORDERS)).deleted
        assert (await made.encodings.get(ORDERS, 0)).version == 2
        third = await made.register(ORDERS, avro("z"))
        assert third.version == 3
        assert not (await made.group(ORDERS)).deleted
        assert [one.number for one in await made.versions(ORDERS)] == [3]
        assert [one.number for one in await made.versions(ORDERS, only_deleted=True)] == [1, 2]
        assert await made.delete_group(ORDERS) == [3]
        assert await made.delete_group(ORDERS, permanent=True) == [1, 2, 3]
        with missing(Missing.GROUP):
            await made.group(ORDERS)
        assert await made.groups("", deleted=True) == []
        fourth = await made.register(ORDERS, avro("a"))
        assert (fourth.version, fourth.id) == (4, 4)
        assert await made.encodings.encode(ORDERS, 4, "") == 1

    run(test())


def test_references_hold_what_they_name(made) -> None:
    async def test():
        item = await made.register(PAYMENTS, avro("a", name="Item"))
        reference = Reference("Item", PAYMENTS.group, item.version)
        order = await made.register(ORDERS, using("Order", reference))
        assert await made.texts(await made.schema(order.id)) == {"Item": (await made.schema(item.id)).text}
        assert await made.referrers(PAYMENTS, 1) == [order.id]
        assert [one.schema.id for one in await made.referenced(await made.schema(order.id))] == [item.id]
        for deletion in (made.delete_version(PAYMENTS, 1), made.delete_group(PAYMENTS)):
            with pytest.raises(Referenced):
                await deletion
        await made.delete_version(ORDERS, 1)
        assert await made.referrers(PAYMENTS, 1) == []
        assert await made.referrers(PAYMENTS, 1, deleted=True) == [order.id]
        await made.delete_version(PAYMENTS, 1)
        with pytest.raises(Referenced):
            await made.delete_version(PAYMENTS, 1, permanent=True)
        with pytest.raises(Referenced):
            await made.delete_group(PAYMENTS, permanent=True)
        with pytest.raises(BadReference):
            await made.register(ORDERS, using("Order", reference))
        assert await made.texts(await made.schema(order.id)), "a deleted schema is still read with its references"
        await made.delete_version(ORDERS, 1, permanent=True)
        await made.delete_version(PAYMENTS, 1, permanent=True)
        with pytest.raises(BadReference):
            await made.register(ORDERS, using("Order", reference))

    run(test())


def test_group_whose_versions_refer_to_each_other_can_be_deleted(made) -> None:
    async def test():
        await made.set_policy(ORDERS, ANY)
        await made.register(ORDERS, avro("a", name="Item"))
        await made.register(ORDERS, using("Order", Reference("Item", ORDERS.group, 1)))
        assert await made.delete_group(ORDERS) == [1, 2]
        assert await made.delete_group(ORDERS, permanent=True) == [1, 2]
        assert (await made.settings(ORDERS)).policy == policy_of(Level.BACKWARD), "its settings went with it"

    run(test())


def test_references_of_references_are_resolved_in_their_namespace(made) -> None:
    async def test():
        space = "team"
        a, b, c = (GroupName(space, name) for name in "abc")
        await made.register(a, avro("x", name="A"))
        await made.register(b, using("B", Reference("A", "a", 1)))
        nested = await made.register(c, using("C", Reference("B", "b", 1)))
        assert sorted(await made.texts(await made.schema(nested.id))) == ["A", "B"]
        with pytest.raises(BadReference):
            await made.register(GroupName("", "c"), using("C", Reference("B", "b", 1)))
        assert await made.namespaces() == ["", space]

    run(test())


def test_settings_hold_for_all_below(made) -> None:
    async def test():
        everything, space, group = GroupName("", ""), GroupName("team", ""), GroupName("team", "g")
        full, forward = policy_of(Level.FULL), policy_of(Level.FORWARD)
        assert await made.settings(group) == Settings(policy_of(Level.BACKWARD), Mode.READWRITE)
        with missing(Missing.SETTING):
            await made.own_settings(everything)
        await made.set_policy(everything, full)
        assert (await made.settings(group)).policy == (await made.settings(ORDERS)).policy == full
        await made.set_policy(space, forward)
        assert (await made.settings(group)).policy == forward
        await made.set_policy(group, ANY)
        await made.set_mode(space, Mode.READONLY)
        assert await made.settings(group) == Settings(ANY, Mode.READONLY)
        with pytest.raises(ReadOnly):
            await made.register(group, avro("a"))
        await made.set_mode(group, Mode.READWRITE)
        await made.register(group, avro("a"))
        await made.set_mode(everything, Mode.READONLY_OVERRIDE)
        assert not (await made.register(group, avro("a"))).new
        for change in (made.register(group, avro("b")), made.delete_version(group, 1), made.set_policy(group, full)):
            with pytest.raises(ReadOnly):
                await change
        await made.set_mode(everything, None)
        with missing(Missing.SETTING):
            await made.set_mode(everything, None)
        await made.set_policy(group, None)
        with missing(Missing.SETTING):
            await made.set_policy(group, None)
        assert await made.own_settings(group) == Settings(None, Mode.READWRITE)

    run(test())


def test_policy_is_changed_only_from_the_expected_one(made) -> None:
    async def test():
        with missing(Missing.GROUP):
            await made.set_policy(ORDERS, ANY, expected=policy_of(Level.BACKWARD))
        await made.register(ORDERS, avro("a"))
        with pytest.raises(PolicyChanged):
            await made.set_policy(ORDERS, ANY, expected=DENY)
        await made.set_policy(ORDERS, DENY, expected=policy_of(Level.BACKWARD))
        with pytest.raises(ReadOnly):
            await made.register(ORDERS, avro("a", b=0))
        assert not (await made.register(ORDERS, avro("a"))).new
        await made.set_policy(PAYMENTS, DENY)
        assert (await made.register(PAYMENTS, avro("z"))).new, "DenyAll lets the first one in"

    run(test())


def test_import_takes_ids_and_versions_once(made) -> None:
    async def test():
        with pytest.raises(ReadOnly):
            await made.register(ORDERS, avro("a"), id=7)
        await made.set_mode(ORDERS, Mode.IMPORT)
        with pytest.raises(ReadOnly):
            await made.register(ORDERS, avro("a"))
        got = await made.register(ORDERS, avro("a"), id=7, version=5)
        assert (got.id, got.version) == (7, 5)
        assert not (await made.register(ORDERS, avro("a"), id=7, version=5)).new
        assert (await made.register(ORDERS, avro("q"), id=3, version=6)).id == 3, "no policy holds there"
        for schema, id, version in ((avro("r"), 7, 7), (avro("r"), 8, 5), (avro("a"), 9, 8), (avro("r"), 1 << 31, 8)):
            with pytest.raises(Invalid):
                await made.register(ORDERS, schema, id=id, version=version)
        await made.set_mode(ORDERS, Mode.READWRITE)
        assert (await made.register(PAYMENTS, avro("n"))).id == 8
        with pytest.raises(Invalid):
            await made.set_mode(ORDERS, Mode.IMPORT)
        await made.set_mode(ORDERS, Mode.IMPORT, force=True)
        with pytest.raises(Invalid):
            await made.set_mode(GroupName("", ""), Mode.IMPORT)

    run(test())


def test_deleted_id_is_imported_for_its_own_schema_alone(made) -> None:
    async def test():
        await made.register(ORDERS, avro("a"))
        await made.delete_group(ORDERS)
        await made.delete_group(ORDERS, permanent=True)
        await made.set_mode(ORDERS, Mode.IMPORT)
        with pytest.raises(Invalid):
            await made.register(ORDERS, avro("b"), id=1)
        assert (await made.register(ORDERS, avro("a"), id=1)).version == 2

    run(test())


def test_group_of_pravega_holds_one_kind_and_one_type(made) -> None:
    async def test():
        await made.create_group(Group(ORDERS, Settings(ANY), Kind.AVRO))
        with pytest.raises(Exists):
            await made.create_group(Group(ORDERS))
        assert await made.versions(ORDERS) == []
        assert await made.groups("") == [ORDERS]
        with pytest.raises(WrongKind) as caught:
            await made.register(ORDERS, NewSchema(Kind.JSON, '{"type": "object"}'))
        assert caught.value.what == "kind"
        await made.register(ORDERS, avro("a"), create=False)
        with pytest.raises(WrongKind) as caught:
            await made.register(ORDERS, avro("a", name="Other"))
        assert caught.value.what == "type"
        assert await made.check(ORDERS, avro("a", name="Other")) != []
        with missing(Missing.GROUP):
            await made.register(PAYMENTS, avro("a"), create=False)
        with pytest.raises(Invalid):
            await made.create_group(Group(PAYMENTS, Settings(policy_of(Level.FULL)), Kind.OPAQUE))
        await made.delete_version(ORDERS, 1)
        assert not (await made.group(ORDERS)).deleted
        await made.delete_version(ORDERS, 1, permanent=True)
        assert await made.versions(ORDERS, deleted=True) == []
        assert await made.delete_group(ORDERS) == []
        await made.create_group(Group(ORDERS, properties={"p": "q"}))
        assert (await made.group(ORDERS)).properties == {"p": "q"}
        assert await made.settings(ORDERS) == Settings(policy_of(Level.BACKWARD), Mode.READWRITE)
        await made.delete_group(ORDERS)
        assert await made.delete_group(ORDERS, permanent=True) == []
        with missing(Missing.GROUP):
            await made.group(ORDERS)

    run(test())


def test_types_have_histories_of_their_own(made) -> None:
    async def test():
        await made.create_group(Group(ORDERS, kind=Kind.AVRO, many_types=True))
        await made.register(ORDERS, avro("a", name="A"))
        await made.register(ORDERS, avro("b", name="B"))
        with pytest.raises(Incompatible):
            await made.register(ORDERS, avro("a", "c", name="A"))
        await made.register(ORDERS, avro("a", name="A", c=1))
        found = await made.versions(ORDERS)
        assert [(one.type, one.type_version) for one in found] == [("A", 0), ("B", 0), ("A", 1)]
        assert await made.can_read(ORDERS, avro("a", name="A"))
        assert not await made.can_read(ORDERS, avro("z", name="B"))

    run(test())


def test_json_schema_is_one_schema_under_two_types(made) -> None:
    async def test():
        await made.create_group(Group(ORDERS, Settings(ANY), Kind.JSON, many_types=True))
        text = '{"type": "object"}'
        one = await made.register(ORDERS, NewSchema(Kind.JSON, text, type="A"))
        two = await made.register(ORDERS, NewSchema(Kind.JSON, text, type="B"))
        assert (one.id, two.id) == (1, 1)
        assert (one.version, two.version) == (1, 2)
        assert not (await made.register(ORDERS, NewSchema(Kind.JSON, text))).new
        assert not (await made.register(ORDERS, NewSchema(Kind.JSON, text, type="A"))).new
        assert (await made.find(ORDERS, NewSchema(Kind.JSON, text, type="A"))).version.number == 1

    run(test())


def test_encodings_count_in_their_group(made) -> None:
    async def test():
        await made.register(ORDERS, avro("a"))
        assert await made.encodings.encode(ORDERS, 1, "") == 0
        assert await made.encodings.encode(ORDERS, 1, "") == 0
        with missing(Missing.CODEC):
            await made.encodings.encode(ORDERS, 1, "gzip")
        await made.encodings.add_codec(ORDERS, "gzip", {"level": "9"})
        assert await made.encodings.encode(ORDERS, 1, "gzip") == 1
        with missing(Missing.VERSION):
            await made.encodings.encode(ORDERS, 2, "")
        assert [(one.version, one.codec) for one in await made.encodings.all(ORDERS)] == [(1, ""), (1, "gzip")]
        with missing(Missing.ENCODING):
            await made.encodings.get(ORDERS, 2)
        assert (await made.group(ORDERS)).codecs == {"gzip": {"level": "9"}}
        await made.register(ORDERS, avro("a", b=0))
        await made.delete_version(ORDERS, 1)
        assert (await made.encodings.get(ORDERS, 1)).codec == "gzip"
        await made.delete_version(ORDERS, 1, permanent=True)
        with missing(Missing.ENCODING):
            await made.encodings.get(ORDERS, 1)
        assert await made.encodings.encode(ORDERS, 2, "gzip") == 2
        assert await made.encodings.all(ORDERS) == [await made.encodings.get(ORDERS, 2)]

    run(test())


def test_restore_raises_all_counters_once() -> None:
    tables = FakeTables()

    async def test():
        before = registry(tables, "node-1")
        await before.register(ORDERS, avro("a"))
        await before.encodings.encode(ORDERS, 1, "")
        for _ in range(2):
            restored = registry(tables, "node-2")
            assert (await restored.register(ORDERS, avro("a"))).id == 1
        first = await restored.register(ORDERS, avro("a", b=0))
        assert (first.id, first.version) == (1_000_002, 1_000_002)
        second = await restored.register(ORDERS, avro("a", c=0))
        assert (second.id, second.version) == (1_000_003, 1_000_003)
        assert await restored.encodings.encode(ORDERS, second.version, "") == 1_000_001
        new = await restored.register(PAYMENTS, avro("p"))
        assert (new.id, new.version) == (1_000_004, 1)
        assert await restored.encodings.encode(PAYMENTS, 1, "") == 1_000_000
        assert [one.type_version for one in await restored.versions(ORDERS)] == [0, 1_000_001, 1_000_002]
        again = registry(tables, "node-3")
        assert (await again.register(ORDERS, avro("a", d=0))).version == 2_000_004
        assert (await again.register(PAYMENTS, avro("p", d=0))).id == 2_000_006

    run(test())


def test_names_with_any_printable_character_are_kept_apart(made) -> None:
    groups = [GroupName("", "a/b"), GroupName("", "a"), GroupName("a", "b"), GroupName("", "ä ☃/v00000001")]

    async def test():
        for number, group in enumerate(groups):
            await made.register(group, avro(f"f{number}"))
        assert await made.groups(None) == sorted(groups)
        assert await made.groups("", prefix="a") == [GroupName("", "a"), GroupName("", "a/b")]
        assert await made.groups("", after="a", limit=1) == [GroupName("", "a/b")]
        for number, group in enumerate(groups):
            assert [one.schema for one in await made.versions(group)] == [number + 1]

    run(test())


def test_worker_begins_with_the_first_schema(made) -> None:
    async def test():
        await made.groups("")
        assert made._parser._threads.begun == []
        await made.register(ORDERS, avro("a"))
        assert made._parser._threads.begun == ["registry"]
        await made.close()

    run(test())


def test_another_controller_sees_every_change() -> None:
    tables = FakeTables()

    async def test():
        one, two = registry(tables), registry(beside(tables))
        await one.register(ORDERS, avro("a"))
        assert (await two.register(ORDERS, avro("a", b=0))).id == 2
        assert (await one.version(ORDERS, LATEST)).schema.id == 2
        await two.delete_group(ORDERS)
        with missing(Missing.GROUP):
            await one.versions(ORDERS)

    run(test())
