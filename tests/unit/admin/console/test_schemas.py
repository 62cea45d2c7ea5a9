"""The page of schemas, and events by their schemas in the live tail."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import aclosing

import pytest

from sarit.admin.console.decoding import EventDecoder
from sarit.core.envelope import Envelope
from sarit.core.errors import Forbidden, NotFound
from sarit.core.names import StreamName
from sarit.process.observation.registry_view import RegistryView
from sarit.registry.access import Guard
from sarit.registry.values import Group, GroupName, NewSchema, Reference
from sarit.schemas.compatibility import Level, Policy, PolicyName, Span, Till, policy_of
from sarit.schemas.definitions import Kind
from sarit.security.permissions import Caller, Permission, schema_group_resource
from sarit.serializers.headers import confluent_header, pravega_header
from tests.unit.admin.console.pages import serve_page
from tests.unit.admin.console.scripts import evaluate, needs_node
from tests.unit.registry.world import registry as new_registry

ITEM = '{"type":"record","name":"Item","fields":[{"name":"n","type":"long"}]}'
ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"Item"}]}'
ORDERS = GroupName("", "shop.orders")


@pytest.fixture(scope="module")
def registry():
    made = new_registry()

    async def fill() -> None:
        await made.register(GroupName("", "item"), NewSchema(Kind.AVRO, ITEM))
        used = (Reference("Item", "item", 1),)
        await made.register(ORDERS, NewSchema(Kind.AVRO, ORDER, used))
        await made.set_policy(ORDERS, policy_of(Level.NONE))
        await made.register(ORDERS, NewSchema(Kind.JSON, '{"title":"<script>"}'))
        await made.register(ORDERS, NewSchema(Kind.AVRO, '"long"'))
        await made.delete_version(ORDERS, 2)
        await made.register(GroupName("team", "a/b c"), NewSchema(Kind.OPAQUE, base64.b64encode(b"x").decode()))

    asyncio.run(fill())
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory, registry):
    yield from serve_page(tmp_path_factory.mktemp("console") / "node", RegistryView(registry, Guard()))


def test_groups_are_listed_with_their_latest_versions(run) -> None:
    async def test(page) -> None:
        assert (await page.get("/session"))["schemas"] is True
        found = await page.get("/schemas")
        rows = {row["group"]: row for row in found["rows"]}
        assert (found["total"], set(rows)) == (3, {"item", "shop.orders", "a/b c"})
        orders = rows["shop.orders"]
        assert (orders["versions"], orders["deleted"], orders["policy"], orders["own_policy"]) == (2, 1, "NONE", True)
        assert (orders["latest"]["number"], orders["latest"]["kind"]) == (3, "AVRO")
        assert rows["a/b c"]["namespace"] == "team"
        assert rows["item"]["policy"] == "BACKWARD"
        assert [row["group"] for row in (await page.get("/schemas", q="shop"))["rows"]] == ["shop.orders"]
        assert len((await page.get("/schemas", offset=1, limit=1))["rows"]) == 1
        for wrong in ({"limit": 0}, {"offset": "x"}, {"q": "x" * 600}):
            await page.get("/schemas", 400, **wrong)

    run(test)


def test_a_group_shows_its_versions_texts_and_references(run) -> None:
    async def test(page) -> None:
        group = await page.get("/schemas/group", group="shop.orders")
        assert [(one["number"], one["deleted"]) for one in group["versions"]] == [(1, False), (2, True), (3, False)]
        first = await page.get("/schemas/version", group="shop.orders", number=1)
        assert (first["type"], first["references"]) == ("Order", [{"name": "Item", "group": "item", "version": 1}])
        assert json.loads(first["text"])["name"] == "Order"
        item = await page.get("/schemas/version", group="item", number=1)
        assert item["referrers"] == [{"group": "shop.orders", "version": 1}]
        # A version that is deleted softly is shown: events may have its id.
        assert (await page.get("/schemas/version", group="shop.orders", number=2))["deleted"] is True
        assert (await page.get("/schemas/group", namespace="team", group="a/b c"))["namespace"] == "team"
        await page.get("/schemas/group", 404, group="none")
        await page.get("/schemas/group", 404)
        await page.get("/schemas/version", 404, group="item", number=9)
        await page.get("/schemas/version", 400, group="item", number=0)

    run(test)


def test_a_tail_shows_events_by_their_schemas_if_asked_to(run) -> None:
    async def test(page) -> None:
        name, call = StreamName("s", "typed"), "/streams/s/typed/events"
        await page.client.create_stream(name)
        await page.get("/streams/s/typed/tail/live", 400, decode=1)  # no header yet
        await page.client.stream(name).set_properties({"schema-header": "confluent"})
        assert (await page.get("/streams/s/typed"))["properties"] == {"schema-header": "confluent"}
        good = confluent_header(2) + b"\x0e"
        events = [good, bytes(Envelope(good, key="k")), b"plain", confluent_header(2), confluent_header(99) + b"x",
                  confluent_header(3) + b'{"a": "\xc3\xa4"}', confluent_header(2) + b"\x0e" * 70_000]  # fmt: skip
        for event in events:
            await page.send("POST", call, {"base64": base64.b64encode(event).decode()})
        await page.client.seal_stream(name)
        head = await page.client.cut(name, "head")
        calls = next(iter(page.console._calls.values())).events
        properties = {"schema-header": "confluent"}
        decoder = EventDecoder(calls._schemas, None, name, properties, page.client.session.env)
        shown = []
        async with aclosing(calls.events(name, head, b"", skips=False, decoder=decoder)) as live:
            async for kind, document, _ in live:
                if kind == "events":
                    shown += document["events"]
        assert [one.get("decoded") for one in shown] == [
            '{"item": {"n": 7}}', '{"item": {"n": 7}}', None, None, None, '{"a": "ä"}', None,
        ]  # fmt: skip
        why = [one.get("not_decoded", "") for one in shown]
        assert "begins with" in why[2]
        assert "it is no datum of the Avro schema" in why[3]
        assert why[4] == "the registry has no such schema, or none that you may read"
        assert why[6] == "it has more than 65,536 bytes"
        assert shown[0]["schema_id"] == 2
        assert base64.b64decode(shown[0]["payload"]["base64"]) == good  # the bytes are there as well
        # A page that does not ask for it has none of it.
        plain = await page.get(call)
        assert all("decoded" not in one for one in plain["events"])

    run(test)


def test_encodings_of_pravegas_header_are_those_of_the_group_of_the_stream(run, registry) -> None:
    async def test(page) -> None:
        number = await registry.encodings.encode(ORDERS, 1, "")
        await registry.encodings.add_codec(ORDERS, "x-gzip", {})
        packed = await registry.encodings.encode(ORDERS, 1, "x-gzip")
        view = RegistryView(registry, Guard())
        properties = {"schema-header": "pravega"}
        decoder = EventDecoder(view, None, StreamName("shop", "orders"), properties, page.client.session.env)
        events = [pravega_header(number) + b"\x0e", pravega_header(packed) + b"\x0e", pravega_header(77)]
        found = await decoder.decode(events)
        await decoder.close()
        assert found[0]["decoded"] == '{"item": {"n": 7}}'
        assert "compressed by the codec x-gzip" in found[1]["not_decoded"]
        assert "no such schema" in found[2]["not_decoded"]

    run(test)


def test_who_asks_sees_what_the_rules_give(registry) -> None:
    async def test() -> None:
        granted = {schema_group_resource("", "item"): Permission.READ}
        view = RegistryView(registry, Guard(lambda _caller, resource: granted.get(resource, Permission.NONE)))
        ann = Caller("ann", frozenset())
        page = await view.groups(ann, "", 0, 10)
        assert (page.total, page.names) == (1, [("", "item")])
        assert (await view.version(ann, "", "item", 1)).referrers == []  # nothing of a group that she may not see
        assert (await view.schema(ann, 1)).kind is Kind.AVRO
        for refused in (view.group(ann, "", "shop.orders"), view.version(ann, "", "shop.orders", 1),
                        view.encoding(ann, "", "shop.orders", 0)):  # fmt: skip
            with pytest.raises(Forbidden, match="may not read"):
                await refused
        with pytest.raises(NotFound):
            await view.schema(ann, 2)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (policy_of(Level.FULL_TRANSITIVE), "FULL_TRANSITIVE"),
        (Policy(PolicyName.DENY_ALL), "DenyAll"),
        (Policy(PolicyName.ADVANCED, Till(3), Span.LATEST), "Advanced: backward till version 3, forward latest"),
    ],
)
def test_policies_are_shown_in_words(policy, text) -> None:
    async def test() -> None:
        made = new_registry()
        name = GroupName("", "g")
        await made.create_group(Group(name, kind=Kind.AVRO))
        for number in range(3):
            await made.register(name, NewSchema(Kind.AVRO, f'{{"type":"fixed","name":"F","size":3,"doc":"{number}"}}'))
        await made.set_policy(name, policy)
        assert (await RegistryView(made, Guard()).group(None, "", "g")).policy == text

    asyncio.run(test())


def test_a_process_without_a_registry_has_no_calls_of_it(tmp_path) -> None:
    for run in serve_page(tmp_path / "node"):

        async def test(page) -> None:
            assert (await page.get("/session"))["schemas"] is False
            await page.get("/schemas", 404)
            await page.client.create_stream("s/typed")
            await page.client.stream("s/typed").set_properties({"schema-header": "confluent"})
            refused = await page.get("/streams/s/typed/tail/live", 400, decode=1)
            assert "start it with --registry" in refused["error"]

        run(test)


@needs_node
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a b c", "a b c", " a  b  c"),
        ("a b c", "a x c", " a -b +x  c"),
        ("", "a", "- +a"),
        ("a b c d", "b c e d", "-a  b  c +e  d"),
        ("a a a", "a a", " a  a -a"),
    ],
)
def test_lines_that_differ_are_found(before, after, shown) -> None:
    def lines(text):
        return json.dumps(text.split(" "))

    found = evaluate("diff.js", f"diff({lines(before)}, {lines(after)})")
    assert " ".join(kind + line for kind, line in found) == shown


@needs_node
def test_texts_that_are_too_long_to_compare_are_not_compared() -> None:
    many = "Array.from({ length: 3000 }, (_, n) => `${n}`)"
    assert evaluate("diff.js", f"diff({many}, {many}.map((line) => `${{line}}x`))") is None
    assert evaluate("diff.js", f"diff({many}, {many}).length") == 3000
