"""Continuous queries on a real node: every match once, however often the job is moved, and the node is killed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from sarit.client.aio import connect
from sarit.client.core.rules import change_rules
from sarit.controller.jobs import JobKey, JobTable
from sarit.core.errors import Exists, Forbidden, Invalid, NotFound
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.process.jobs.match_outputs import StreamOutputs
from sarit.process.search import continuous as continuous_calls
from sarit.process.search import continuous_outputs
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.search.continuous_plan import CONTINUOUS_JOB, CONTINUOUS_KIND, Proof
from sarit.security.permissions import Permission, Rule
from tests.limits import HANG_SECONDS
from tests.security.running import Secured, secured, write_files

ORDERS, ALERTS = "shop/orders", "shop/alerts"
KEY = JobKey(CONTINUOUS_KIND, StreamName.parse(ORDERS), CONTINUOUS_JOB)


def on_node(path, work):
    async def main():
        config = NodeConfig(str(path), controller_port=0, store_port=0, jobs=True).validated()
        node = await open_node(config, real_env())
        await node.start()
        try:
            async with asyncio.timeout(HANG_SECONDS), connect(f"127.0.0.1:{node.controller_port}") as client:
                return await work(node, client)
        finally:
            await node.stop()

    return asyncio.run(main())


async def prepare(client, *outputs: str) -> None:
    await client.create_scope("shop")
    await client.create_stream(ORDERS, segments=2)
    for output in outputs or (ALERTS,):
        await client.create_stream(output)


async def write(client, *events: str) -> None:
    async with client.writer(ORDERS) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=str(number))


async def read(client, stream: str) -> list[bytes]:
    async with client.reader(stream, start="head", end="tail") as reader:
        return [bytes(event) async for event in reader]


async def found(client, output: str = ALERTS) -> Counter[tuple[str, str]]:
    """The matches of an output: the names of queries, and the texts of events."""
    documents = [json.loads(event) for event in await read(client, output)]
    return Counter((each["query"], each["event"]) for each in documents)


async def until(client, wanted: Counter[tuple[str, str]], output: str = ALERTS) -> None:
    while sum((await found(client, output)).values()) < sum(wanted.values()):
        await asyncio.sleep(0.1)
    assert await found(client, output) == wanted


def test_matches_of_queries_that_come_change_and_go(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        await write(client, "red before")
        made = await client.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        assert made.state == "active"
        assert sum(made.holds_from.positions.values()) > 0
        await write(client, "red one", "blue two", "Red three")
        await until(client, Counter([("red", "red one"), ("red", "Red three")]))
        await client.stream(ORDERS).scale(4)
        changed = await client.continuous.change(ORDERS, "red", "red -blue")
        assert changed.query == "red -blue"
        assert changed.holds_from != made.holds_from
        await write(client, "red four", "red blue five")
        await until(client, Counter([("red", "red one"), ("red", "Red three"), ("red", "red four")]))
        await client.continuous.delete(ORDERS, "red")
        assert await client.continuous.list(ORDERS) == ()
        await write(client, "red six")
        await client.continuous.create(ORDERS, "blue", "blue", ALERTS, with_event=True)
        await write(client, "red blue seven")
        seen = Counter([("red", "red one"), ("red", "Red three"), ("red", "red four"), ("blue", "red blue seven")])
        await until(client, seen)
        progress = await client.continuous.progress(ORDERS)
        assert progress.problem == ""

    on_node(tmp_path, work)


def test_matches_go_on_after_a_restart(tmp_path) -> None:
    async def begin(node, client):
        await prepare(client)
        await client.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        await write(client, "red one")

    async def go_on(node, client):
        await write(client, "red two")
        await until(client, Counter([("red", "red one"), ("red", "red two")]))

    on_node(tmp_path, begin)
    on_node(tmp_path, go_on)


def test_what_cannot_be_asked_is_refused(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        create = client.continuous.create
        with pytest.raises(NotFound, match="stream shop/nowhere does not exist"):
            await create(ORDERS, "red", "red", "shop/nowhere")
        with pytest.raises(NotFound, match="stream shop/elsewhere does not exist"):
            await create("shop/elsewhere", "red", "red", ALERTS)
        with pytest.raises(Invalid, match="own matches"):
            await create(ORDERS, "red", "red", ORDERS)
        with pytest.raises(Invalid, match="level"):
            await create(ORDERS, "red", "level:red", ALERTS)
        with pytest.raises(Invalid, match="continuous query"):
            await create(ORDERS, "red rose", "red", ALERTS)
        with pytest.raises(Invalid):
            await create(ORDERS, "red", '"red', ALERTS)
        with pytest.raises(Invalid, match="JSON"):
            await create(ORDERS, "red", "red", ALERTS, mapping={"fields": object()})
        with pytest.raises(Invalid):
            await create(ORDERS, "red", "red", "_system/containers")
        with pytest.raises(NotFound):
            await client.continuous.delete(ORDERS, "red")
        await create(ORDERS, "red", "red", ALERTS)
        await create(ORDERS, "red", "red", ALERTS)  # the same again, as after an answer that was lost
        with pytest.raises(Exists):
            await create(ORDERS, "red", "blue", ALERTS)
        assert [query.name for query in await client.continuous.list(ORDERS)] == ["red"]

    on_node(tmp_path, work)


def test_an_output_that_leads_back_to_the_stream_is_refused(tmp_path, monkeypatch) -> None:
    async def work(node, client):
        await prepare(client, ALERTS, "shop/others", "shop/third")
        create = client.continuous.create
        await create(ORDERS, "red", "red", ALERTS)
        await create(ALERTS, "more", "red", "shop/others")
        await create(ALERTS, "too", "red", "shop/third")
        with pytest.raises(Invalid, match="own matches.*: shop/orders -> shop/alerts -> shop/others"):
            await create("shop/others", "back", "red", ORDERS)
        with pytest.raises(Invalid, match=": shop/alerts -> shop/others"):
            await create("shop/others", "back", "red", ALERTS)
        assert await client.continuous.list("shop/others") == ()
        # A query that is gone leads nowhere.
        await client.continuous.delete(ALERTS, "more")
        monkeypatch.setattr(continuous_outputs, "CONTINUOUS_COUNT_SECONDS", 0.0)
        await create("shop/others", "back", "red", ORDERS)
        monkeypatch.setattr(continuous_outputs, "MAX_CONTINUOUS_WAY_STREAMS", 2)
        with pytest.raises(Invalid, match="more than 2 streams"):
            await create("shop/third", "back", "red", "shop/others")

    on_node(tmp_path, work)


def test_many_queries_are_listed_page_by_page(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(continuous_calls, "MAX_LISTED_CONTINUOUS", 2)

    async def work(node, client):
        await prepare(client)
        assert await client.continuous.list(ORDERS) == ()
        names = [f"q-{number}" for number in range(5)]
        for name in names:
            await client.continuous.create(ORDERS, name, "red", ALERTS, wait=0)
        assert [query.name for query in await client.continuous.list(ORDERS)] == names
        assert (await client.continuous.get(ORDERS, "q-3")).name == "q-3"

    on_node(tmp_path, work)


def test_fields_of_a_mapping_can_be_asked_for(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        mapping = {"fields": {"level": "keyword", "took": "number"}}
        await client.continuous.create(ORDERS, "slow", "level:error took:>=5", ALERTS, with_event=True, mapping=mapping)
        slow = '{"level": "error", "took": 7}'
        await write(client, slow, '{"level": "error", "took": 2}', '{"level": "info", "took": 7}')
        await until(client, Counter([("slow", slow)]))
        with pytest.raises(Invalid, match="keyword"):
            await client.continuous.create(ORDERS, "other", "level:5", ALERTS, mapping={"fields": {"level": "number"}})

    on_node(tmp_path, work)


def test_fields_are_those_of_the_first_events(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        await write(client, '{"level": "info", "took": 1}')
        await client.continuous.create(ORDERS, "slow", "took:>=5", ALERTS, with_event=True)
        slow = '{"level": "error", "took": 7}'
        await write(client, slow, '{"level": "error", "took": 2}')
        await until(client, Counter([("slow", slow)]))
        with pytest.raises(Invalid, match="nothing"):
            await client.continuous.create(ORDERS, "other", "nothing:5", ALERTS)

    on_node(tmp_path, work)


def test_rows_of_a_deleted_stream_are_deleted(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        await client.continuous.create(ORDERS, "red", "red", ALERTS)
        site = node.controller_role.site
        await site.sweep_once()
        assert len(await site.rows.scan(b"q/")) == 1
        await client.seal_stream(ORDERS)
        await client.delete_stream(ORDERS)
        await site.sweep_once()
        assert await site.rows.scan(b"q/") == []

    on_node(tmp_path, work)


def test_nobody_knows_what_was_in_an_output_that_was_made_again(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        before = await client.stream_cut_tail(ALERTS)
        outputs = StreamOutputs(client.session, real_env().clock)
        assert await outputs.has(StreamName.parse(ALERTS), before, Proof("6f", 0, 0)) is False
        await client.delete_stream(ALERTS, seal=True)
        await client.create_stream(ALERTS)
        assert await outputs.has(StreamName.parse(ALERTS), before, Proof("6f", 0, 0)) is None
        await outputs.close()

    on_node(tmp_path, work)


def test_an_output_that_is_sealed_suspends_its_queries_and_no_others(tmp_path) -> None:
    async def work(node, client):
        await prepare(client, ALERTS, "shop/others")
        await client.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        await client.continuous.create(ORDERS, "too", "red", "shop/others", with_event=True)
        await client.seal_stream("shop/others")
        await write(client, "red one")
        await until(client, Counter([("red", "red one")]))
        query = await client.continuous.get(ORDERS, "too")
        assert query.state == "failed"
        assert "seal" in query.problem
        assert query.holds_from is None

    on_node(tmp_path, work)


def test_a_stream_that_is_sealed_has_all_its_matches_and_no_job(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        await client.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        await write(client, "red one", "red two")
        await client.seal_stream(ORDERS)
        await until(client, Counter([("red", "red one"), ("red", "red two")]))
        while not (await JobTable(node.controller.catalog).find(KEY)).job.done:
            await asyncio.sleep(0.1)

    on_node(tmp_path, work)


def test_a_job_that_was_deleted_begins_again_at_the_tail(tmp_path) -> None:
    async def work(node, client):
        await prepare(client)
        made = await client.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        await client.stream(ORDERS).delete_job(CONTINUOUS_KIND, CONTINUOUS_JOB)
        await asyncio.sleep(0)
        await write(client, "red one")
        while (again := await client.continuous.get(ORDERS, "red")).holds_from == made.holds_from:
            await asyncio.sleep(0.1)
        assert again.state == "active"
        await write(client, "red two")
        while ("red", "red two") not in await found(client):
            await asyncio.sleep(0.1)

    on_node(tmp_path, work)


def test_a_query_acts_with_the_rights_that_its_maker_has_now(tmp_path) -> None:
    source, output = "prn::/scope:shop/stream:orders", "prn::/scope:shop/stream:alerts"
    reads, writes = ("user:alice", source, "READ"), ("user:alice", output, "READ_UPDATE")

    async def state(root, wanted: str) -> str:
        while (query := await root.continuous.get(ORDERS, "red")).state != wanted:
            await asyncio.sleep(0.1)
        return query.problem

    async def work(node: Secured, root, alice) -> None:
        await prepare(root)
        with pytest.raises(Forbidden):
            await alice.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        await node.grant(writes)
        with pytest.raises(Forbidden, match="alice may not read"):
            await alice.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        await node.grant(reads)
        made = await alice.continuous.create(ORDERS, "red", "red", ALERTS, with_event=True)
        assert (made.state, made.maker) == ("active", "alice")
        await write(root, "red one")
        await until(root, Counter([("red", "red one")]))
        await change_rules(root.session.controller, [Rule("user:alice", source, Permission.NONE)])
        assert "alice, who made it, may not read shop/orders" in await state(root, "failed")
        await write(root, "red two")
        await node.grant(reads)
        assert await state(root, "active") == ""
        await write(root, "red three")
        await until(root, Counter([("red", "red one"), ("red", "red three")]))
        async with node.client("bob") as bob:
            await node.grant(("user:bob", source, "READ"))
            assert await bob.continuous.list(ORDERS) == ()
            with pytest.raises(NotFound):
                await bob.continuous.delete(ORDERS, "red")

    async def main() -> None:
        async with (
            asyncio.timeout(HANG_SECONDS), secured(tmp_path, write_files(tmp_path), jobs=True) as node,
            node.client("root") as root, node.client("alice") as alice,
        ):  # fmt: skip
            await work(node, root, alice)

    asyncio.run(main())
