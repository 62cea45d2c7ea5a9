"""Queries of the console on a node: each in a process, bounded, and killed when nobody waits for it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack, aclosing

import pytest
import uvloop

from sarit.admin.console.query_view import QueryRequest, QueryTooLarge
from sarit.core.errors import Corrupt, Invalid, NotFound, TimedOut, Unavailable
from sarit.core.limits import MIB
from sarit.env.real import real_env
from sarit.process import query_runner
from sarit.process.query_runner import QueryRunner
from sarit.security.audit import NoAudit
from sarit.security.permissions import Caller
from sarit.serializers.headers import confluent_header
from sarit.serializers.schema_source import WrittenSchema
from tests.console.serving import serving
from tests.limits import HANG_SECONDS
from tests.unit.client.world import until

EVENTS = 3000
ANN = Caller("ann", frozenset())
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
NONE = {"done": 0, "failed": 0, "timeout": 0, "cancelled": 0}
FOR_EVER = "SELECT count(*) FROM range(1000000) AS a, range(1000000) AS b"


class World:
    """A node with a stream, and what runs queries on it."""

    def __init__(self, client) -> None:
        self.client = client

    def runner(self, **options) -> QueryRunner:
        return QueryRunner(real_env(), NoAudit(), **options)

    def run(self, runner: QueryRunner, sql: str, form: str = "page", limit: int = MIB, caller: Caller | None = None):
        return runner.run(self.client, caller, QueryRequest(sql, form, limit))

    async def steps(self, *given, **named) -> list[tuple[str, object]]:
        async with aclosing(self.run(*given, **named)) as steps:
            return [(name, document) async for name, document in steps if name != "step"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    # The loop of nodes, on which a pipe whose reader is gone says so in another way.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()

        async def start() -> World:
            made = await stack.enter_async_context(serving(tmp_path_factory.mktemp("queries") / "node"))
            await made.client.create_scope("shop")
            await made.client.create_stream("shop/orders", segments=2)
            async with made.client.writer("shop/orders") as writer:
                for number in range(EVENTS):
                    writer.write(b"%d" % number, key=str(number % 7))
            return World(made.client)

        world = runner.run(start())

        def bounded(test) -> None:
            async def within() -> None:
                async with asyncio.timeout(HANG_SECONDS):
                    await test(world)

            runner.run(within())

        yield bounded
        runner.run(stack.aclose())


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def pid_of(runner: QueryRunner) -> int:
    """The process of the query that runs, when it has begun."""
    (one,) = runner._running
    await until(lambda: one._process is not None and one._frames is not None and one._process.stdout is not None)
    return one._process.pid


def test_a_query_reads_the_stream_and_answers_rows_and_files(run) -> None:
    async def test(world) -> None:
        runner = world.runner()
        sql = "SELECT count(*) AS events, count(DISTINCT sarit.segment) AS segments FROM shop.orders"
        columns, rows, done = await world.steps(runner, sql)
        assert [each["name"] for each in columns[1]["columns"]] == ["events", "segments"]
        assert (rows[0], json.loads(rows[1])) == ("rows", [[EVENTS, 2]])
        assert (done[0], done[1]["rows"], done[1]["complete"]) == ("done", 1, True)
        assert done[1]["read_bytes"] == done[1]["planned_bytes"] > EVENTS * 8
        found = await world.steps(runner, "SELECT value FROM shop.orders ORDER BY value::VARCHAR::INT LIMIT 2", "csv")
        read = 2 * done[1]["read_bytes"]
        assert ("sarit_console_query_read_bytes_total", (), read) in list(runner.samples())
        assert ("sarit_console_queries_total", ("done",), 2) in list(runner.samples())
        assert "".join(text for name, text in found if name == "csv") == "value\r\n0\r\n1\r\n"
        assert (runner.running, runner.counts) == (0, {**NONE, "done": 2})
        await runner.close()

    run(test)


def test_errors_name_what_is_wrong(run) -> None:
    async def test(world) -> None:
        runner = world.runner()
        with pytest.raises(NotFound, match=r"shop\.ordrs; near it: shop\.orders"):
            await world.steps(runner, "SELECT * FROM shop.ordrs")
        with pytest.raises(Invalid, match="only a SELECT"):
            await world.steps(runner, "COPY (SELECT 1) TO '/tmp/x'")
        with pytest.raises(QueryTooLarge) as refused:
            await world.steps(runner, "SELECT * FROM shop.orders", limit=1000)
        assert refused.value.planned_bytes > EVENTS * 8
        assert runner.counts == {**NONE, "failed": 3}
        await runner.close()

    run(test)


def test_a_query_that_nobody_waits_for_is_killed(run) -> None:
    async def test(world) -> None:
        runner = world.runner(most=1)
        steps = world.run(runner, FOR_EVER)
        assert (await anext(steps))[0] == "step"
        pid = await pid_of(runner)
        with pytest.raises(Unavailable, match="1 queries run on this process, which is the limit"):
            await world.steps(runner, "SELECT 1")
        await steps.aclose()
        assert not lives(pid)
        assert (runner.running, runner.counts) == (0, {**NONE, "cancelled": 1})

        # The end of the process that serves the console ends those of queries, too.
        steps = world.run(runner, FOR_EVER)
        await anext(steps)
        pid = await pid_of(runner)
        await runner.close()
        assert not lives(pid)
        await steps.aclose()

    run(test)


def test_time_is_bounded_and_one_user_has_one_query(run) -> None:
    async def test(world) -> None:
        runner = world.runner(seconds=1.0)
        steps = world.run(runner, FOR_EVER, caller=ANN)
        assert (await anext(steps))[0] == "step"
        with pytest.raises(Unavailable, match="a query of ann runs already"):
            await world.steps(runner, "SELECT 1", caller=ANN)
        with pytest.raises(TimedOut, match="not done after 1 seconds"):
            async for _ in steps:
                pass
        assert (runner.running, runner.counts) == (0, {**NONE, "timeout": 1})
        await runner.close()

    run(test)


class Schemas:
    """A registry with one subject, and who asked for what."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def of(self, caller: Caller | None) -> Schemas:
        self.asked.append(caller)
        return self

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        self.asked.append(subject)
        return WrittenSchema("AVRO", SCHEMA, version=1)

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        return WrittenSchema("AVRO", SCHEMA)


def test_values_are_columns_by_the_schemas_that_the_caller_may_read(run) -> None:
    async def test(world) -> None:
        await world.client.create_stream("shop/typed")
        await world.client.stream("shop/typed").set_properties({"schema-header": "confluent"})
        async with world.client.writer("shop/typed") as writer:
            writer.write(confluent_header(1) + b"\x0e")
        schemas = Schemas()
        runner = world.runner(schemas=schemas.of)
        found = await world.steps(runner, "SELECT n + 1 FROM shop.typed", caller=ANN)
        assert [json.loads(rows) for name, rows in found if name == "rows"] == [[[8]]]
        assert schemas.asked[0] == ANN
        assert set(schemas.asked[1:]) == {"shop.typed"}
        # A process without a registry asks no other one.
        runner = world.runner()
        found = await world.steps(runner, "DESCRIBE shop.typed")
        assert [row[0] for row in json.loads(found[1][1])] == ["sarit", "value"]
        request = QueryRequest("SELECT * FROM shop.typed", "page", MIB, "schema")
        with pytest.raises(NotFound, match="this process has no schema registry"):
            async for _ in runner.run(world.client, None, request):
                pass

    run(test)


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        ("os.write(1, bytes(100))", Corrupt, "a message of 0 bytes"),
        ("os.write(1, b'\\xff\\xff\\xff\\xffA')", Corrupt, "a message of 4294967295 bytes"),
        ("os.write(1, b'\\0\\0\\0\\x06\\x43[1,2]')", Corrupt, "a read cannot be understood"),
        ("os.write(1, b'\\0\\0\\0\\x0c\\x43[1,0,[],[]]')", Corrupt, "a table that it has not found"),
        ("os.write(1, b'\\0\\0\\0\\x02\\x447')", Corrupt, "a scan that it has not begun"),
        ("os.write(1, b'\\0\\0\\0\\x04\\x47[\\n]')", Corrupt, "sent no rows"),
        ("os.write(1, b'\\0\\0\\0\\x01\\x02')", Corrupt, "sent RELATION"),
        ("os.write(1, b'\\0\\0\\0\\x03\\x49[]')", Corrupt, "an error that cannot be read"),
        ("os.abort()", Invalid, "most likely it needed more memory"),
        ("os._exit(3)", Unavailable, r"ended by itself \(status 3\)"),
    ],
)
def test_a_process_that_lies_is_ended(run, monkeypatch, program, error, text) -> None:
    async def test(world) -> None:
        runner = world.runner()
        with pytest.raises(error, match=text):
            await world.steps(runner, "SELECT 1")
        assert runner.running == 0
        await runner.close()

    monkeypatch.setattr(query_runner, "_CHILD", ("-c", f"import os, time\n{program}\ntime.sleep(1000)"))
    run(test)


def test_a_query_may_end_while_its_rows_are_read(run, monkeypatch) -> None:
    """A LIMIT ends the process, while another of its threads has asked for more."""
    asks = 'b\'\\0\\0\\0\\x12\\x42["shop","orders"]\''
    done = 'b\'\\0\\0\\0\\x1b\\x48{"rows":0,"complete":true}\''

    async def test(world) -> None:
        runner = world.runner()
        ((name, document),) = await world.steps(runner, "SELECT 1")
        assert (name, document["rows"], document["complete"]) == ("done", 0, True)
        await runner.close()

    monkeypatch.setattr(query_runner, "_CHILD", ("-c", f"import os\nos.write(1, {asks} * 20 + {done})"))
    run(test)


def test_nothing_is_loaded_before_the_first_query() -> None:
    code = (
        "import sys, sarit.admin.console, sarit.process.admin, sarit.process.query_runner\n"
        "print([name for name in ('duckdb', 'pyarrow', 'sarit.sql') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
