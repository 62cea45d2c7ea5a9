"""Traces: numbers and sampling; the spans of one append, one read and one call on a real node."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sarit
from sarit.cli.standalone import standalone
from sarit.client import aio
from sarit.core.errors import Invalid
from sarit.env import traces as names
from sarit.env.limits import MAX_TRACED_APPENDS
from sarit.env.otlp import OtlpSpans
from sarit.env.real import real_env
from sarit.env.traces import Traces, parse_traces
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode


class Spans:
    """A sink that keeps them."""

    def __init__(self):
        self.taken = []

    def take(self, span):
        self.taken.append(span)

    def close(self):
        pass


def test_client_and_store_derive_the_same_numbers():
    store, client = Traces(Spans(), 1.0), Traces(Spans(), 1.0)
    assert store.of_append(b"w" * 16, 7) == client.of_append(b"w" * 16, 7) != client.of_append(b"w" * 16, 8)
    assert store.of_read("s/t/0", 1, 2) == client.of_read("s/t/0", 1, 2) != client.of_read("s/t/0", 2, 1)
    assert store.of_call("17") == client.of_call("17")
    assert store.of_call("") is None


def test_ratio_is_of_traces_and_a_lower_one_takes_a_part():
    few, more = Traces(Spans(), 0.1), Traces(Spans(), 0.3)
    taken_by_few = {number for number in range(5000) if few.of_append(b"w" * 16, number) is not None}
    taken_by_more = {number for number in range(5000) if more.of_append(b"w" * 16, number) is not None}
    assert taken_by_few < taken_by_more
    assert 400 < len(taken_by_few) < 600
    assert 1350 < len(taken_by_more) < 1650


def test_appends_that_are_never_acknowledged_are_forgotten():
    traces = Traces(Spans(), 1.0)
    for number in range(MAX_TRACED_APPENDS + 10):
        traces.append_arrived(b"w" * 16, number, 1.0)
    assert len(traces.appends) == MAX_TRACED_APPENDS
    traces.append_acknowledged(b"w" * 16, 0, 2.0, "s", 1, 1)
    assert not traces._sink.taken


@pytest.mark.parametrize("text", ["http://h:1", "otlp=h:1", "otlp=ftp://h", "otlp=http://", "otlp=http://h:x", ""])
def test_wrong_receiver_is_refused(text):
    with pytest.raises(Invalid, match="otlp=http://HOST:4318"):
        parse_traces(text, 1.0)


def test_ratio_out_of_bounds_is_refused():
    for ratio in (0.0, -1.0, 1.5):
        with pytest.raises(Invalid, match="ratio"):
            parse_traces("otlp=http://h", ratio)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What a node and a client recorded while one event was written, awaited at the tail, and read from memory."""
    exporter = InMemorySpanExporter()
    asyncio.run(_write_and_read(tmp_path_factory.mktemp("traced") / "node", exporter))
    return exporter.get_finished_spans()


async def _write_and_read(directory, exporter):
    env = replace(real_env(), traces=Traces(OtlpSpans(SimpleSpanProcessor(exporter), "test"), 1.0))
    node = await open_node(NodeConfig(str(directory), controller_port=0, store_port=0).validated(), env)
    await node.start()
    try:
        async with (
            asyncio.timeout(HANG_SECONDS),
            await aio.open_client(f"127.0.0.1:{node.controller_port}", env=env) as client,
        ):
            await client.create_scope("s")
            await client.create_stream("s/t", segments=1)
            async with client.reader("s/t") as reader:
                waiting = asyncio.ensure_future(anext(aiter(reader)))
                while not any(handler._parked for handler in _read_handlers(node)):
                    await asyncio.sleep(0.01)
                async with client.writer("s/t") as writer:
                    writer.write(b"one", key="k")
                assert await waiting == b"one"
    finally:
        await node.stop()


def _read_handlers(node):
    return [connection._reads for connection in node.server._connections if not connection.closed]


def _tree(spans, root_name):
    (root,) = [span for span in spans if span.name == root_name and span.attributes.get("sarit.segment", "s/t/")
               .startswith("s/t/")][:1]  # fmt: skip
    return root, {span.name: span for span in spans if span.context.trace_id == root.context.trace_id}


def test_spans_of_an_append_are_one_tree_in_order(finished):
    root, tree = _tree(finished, names.CLIENT_APPEND)
    parents = {
        names.CLIENT_APPEND: None,
        names.STORE_APPEND: names.CLIENT_APPEND,
        names.WAIT_FOR_FRAME: names.STORE_APPEND,
        names.FRAME: names.STORE_APPEND,
        names.LOG_SYNC: names.FRAME,
        names.ACKNOWLEDGE: names.STORE_APPEND,
    }
    assert set(tree) == set(parents)
    assert len([span for span in finished if span.context.trace_id == root.context.trace_id]) == len(parents)
    for name, parent in parents.items():
        span = tree[name]
        if parent is None:
            assert span.parent is None
        else:
            above = tree[parent]
            assert span.parent.span_id == above.context.span_id
            # A microsecond: the offset between the clocks is taken for each span.
            assert above.start_time <= span.start_time + 50_000, name
            assert span.end_time <= above.end_time + 50_000, name
        assert span.start_time <= span.end_time
    in_order = [names.WAIT_FOR_FRAME, names.FRAME, names.ACKNOWLEDGE]
    for before, after in pairwise(in_order):
        assert tree[before].end_time <= tree[after].start_time + 50_000
    assert root.attributes["sarit.events"] == 1
    assert tree[names.FRAME].attributes["sarit.frame"] > 0


def test_spans_of_a_read_say_that_it_waited_at_the_tail(finished):
    _, tree = _tree([span for span in finished if span.attributes.get("sarit.bytes") != 0], names.CLIENT_READ)
    tree |= {span.name: span for span in finished if span.context.trace_id == tree[names.CLIENT_READ].context.trace_id}
    assert set(tree) == {names.CLIENT_READ, names.STORE_READ, names.WAIT_AT_TAIL}
    assert tree[names.STORE_READ].parent.span_id == tree[names.CLIENT_READ].context.span_id
    assert tree[names.WAIT_AT_TAIL].parent.span_id == tree[names.STORE_READ].context.span_id
    assert tree[names.STORE_READ].attributes["sarit.bytes"] == 11  # the event with its header


def test_spans_of_a_call_join_client_and_controller(finished):
    calls = [span for span in finished if span.name == names.CLIENT_CALL]
    created = next(span for span in calls if "createStream" in str(span.attributes["sarit.method"]))
    (answered,) = [
        span for span in finished
        if span.name == names.CONTROLLER_CALL and span.context.trace_id == created.context.trace_id
    ]  # fmt: skip
    assert answered.parent.span_id == created.context.span_id
    assert answered.attributes["sarit.status"] == "OK"


class _Receiver(HTTPServer):
    """Takes OTLP over HTTP."""

    def __init__(self):
        self.spans: dict[str, set[str]] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                for part in request.resource_spans:
                    (service,) = [
                        each.value.string_value for each in part.resource.attributes if each.key == "service.name"
                    ]
                    for scope in part.scope_spans:
                        receiver.spans.setdefault(service, set()).update(span.name for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.mark.long  # by `make observability`
def test_processes_of_a_node_and_a_client_send_spans(tmp_path):
    receiver = _Receiver()
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    variables = {"SARIT_TRACES": f"otlp=http://127.0.0.1:{receiver.server_port}", "SARIT_TRACE_RATIO": "1"}
    with RunningNode(tmp_path / "data", "--processes", "2", env={**os.environ, **variables}) as node:
        variables["SARIT_CONTROLLER"] = node.controller
        for words in (["scope", "create", "s"], ["stream", "create", "s/t"], ["write", "s/t"]):
            subprocess.run([SARIT, *words], input=b"one\n", check=True, env={**os.environ, **variables})
        assert node.stop() == 0
    receiver.shutdown()
    assert receiver.spans["sarit-client"] >= {names.CLIENT_APPEND, names.CLIENT_CALL}
    stores = [found for service, found in receiver.spans.items() if service.startswith("sarit-") and "store" in service]
    assert {names.STORE_APPEND, names.FRAME, names.LOG_SYNC} <= set().union(*stores)
    assert any(names.CONTROLLER_CALL in found for found in receiver.spans.values())


@pytest.mark.long  # by `make observability`
def test_receiver_that_is_away_costs_spans_alone(tmp_path):
    with (
        RunningNode(tmp_path / "data", "--traces", "otlp=http://127.0.0.1:9", "--trace-ratio", "1") as node,
        sarit.connect(node.controller) as client,
    ):
        client.create_scope("s")
        client.create_stream("s/t")
        with client.writer("s/t") as writer:
            writer.write_many([b"x"] * 1000)
        assert len(list(client.reader("s/t", end="tail"))) == 1000
    assert "Traceback" not in node.log()


def test_option_of_traces_is_checked():
    run = CliRunner().invoke(standalone, ["--traces", "http://x"])
    assert run.exit_code == 2
    assert "otlp=http://HOST:4318" in run.output
