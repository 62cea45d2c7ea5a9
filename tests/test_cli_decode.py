"""`sarit read --decode`, as a user types it, with a registry in memory."""

from __future__ import annotations

import json

import sarit as client_of
from sarit.serializers.headers import confluent_header
from sarit.serializers.registry_client import RegistryClient
from sarit.serializers.schema import Schema
from tests.nodes import RunningNode
from tests.test_cli import sarit
from tests.unit.serializers.fake_registry import served


def test_events_are_shown_by_the_schemas_that_they_name(tmp_path):
    with RunningNode(tmp_path / "node") as node, served() as fake, client_of.connect(node.controller) as client:
        RegistryClient(fake.url).register("shop.orders", Schema('"long"'))
        client.create_scope("shop")
        client.create_stream("shop/orders")
        read = ("read", "shop/orders", "--decode", "--registry", fake.url)
        assert "--property schema-header=confluent" in sarit(node, *read, code=2)[1]
        sarit(node, "stream", "update", "shop/orders", "--property", "schema-header=confluent")
        events = [confluent_header(1) + b"\x0e", b"plain", confluent_header(1) + b"\x10"]
        with client.writer("shop/orders") as writer:
            for event in events:
                writer.write(event, key="k")
        printed, said = sarit(node, *read, "--print-cut", code=1)
        assert printed == "7\n"
        assert "the event at 0.#epoch.0, offset 14 of shop/orders is not decoded: the event begins with" in said
        cut = said.splitlines()[0]
        printed, said = sarit(node, *read, "--on-error", "skip", "--format", "json")
        assert [json.loads(line)["event"] for line in printed.splitlines()] == [7, 8]
        assert "offset 14" in said
        # The cut is behind what was printed, also where the next event is skipped.
        assert sarit(node, *read, "--from", cut, "--on-error", "skip", "--limit", "2")[0] == "8\n"
        assert "give --decode, too" in sarit(node, "read", "shop/orders", "--on-error", "skip", code=2)[1]
        assert "leave --envelope and --line away" in sarit(node, *read, "--envelope", code=2)[1]
        assert "does not answer" in sarit(node, "read", "shop/orders", "--decode", code=1)[1]


ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'


def test_lines_are_encoded_by_the_latest_schema_of_a_subject(tmp_path):
    with RunningNode(tmp_path / "node") as node, served() as fake:
        registry = RegistryClient(fake.url)
        registry.register("orders", Schema('"string"'))
        registry.register("orders", Schema(ORDER))
        registry.register("notes", Schema("{}", "JSON"))
        registry.register("shapes", Schema('syntax = "proto3";', "PROTOBUF"))
        at = ("--registry", fake.url)
        sarit(node, "stream", "create", "shop/plain", "--create-scope")
        refused = sarit(node, "write", "shop/plain", "--schema", "orders", *at, code=2, stdin="{}")[1]
        assert "--property schema-header=confluent" in " ".join(refused.split())
        write = ("write", "shop/orders", "--create", "--schema")
        sarit(node, *write, "orders", *at, "--key-separator", "|", stdin='a|{"n": 1}\nb|{"n": 2}\n')
        sarit(node, *write, "notes", *at, "--envelope", "--key", "k", stdin='{"n": "\u00e4"}\n')
        bad = '{"n": 3}\n{"n": "x"}\n{"n": 4}\n'
        refused = sarit(node, *write, "orders", *at, stdin=bad, code=1)[1]
        assert "line 2: the value does not fit the Avro schema Order" in refused
        assert "line 1: it is no JSON document" in sarit(node, *write, "orders", *at, stdin="{", code=1)[1]
        printed = sarit(node, "read", "shop/orders", "--decode", *at)[0]
        assert printed == '{"n": 1}\n{"n": 2}\n{"n": "ä"}\n{"n": 3}\n'
        assert "of the format PROTOBUF" in " ".join(sarit(node, *write, "shapes", *at, stdin="{}", code=2)[1].split())
        assert "Subject 'none' not found" in sarit(node, *write, "none", *at, stdin="{}", code=1)[1]
        assert "leave --format json and --input away" in " ".join(
            sarit(node, *write, "orders", *at, "--input", "json", stdin="{}", code=2)[1].split()
        )
        assert "give --schema, too" in sarit(node, "write", "shop/orders", *at, stdin="x", code=2)[1]


def test_export_takes_the_schemas_along_and_import_registers_them(tmp_path):
    file = str(tmp_path / "orders.jsonl")
    with RunningNode(tmp_path / "node") as node, served() as fake, served() as other:
        RegistryClient(fake.url).register("unused", Schema('"string"'))
        RegistryClient(fake.url).register("orders", Schema(ORDER))
        at, there = ("--registry", fake.url), ("--registry", other.url)
        sarit(node, "write", "shop/orders", "--create", "--schema", "orders", *at, stdin='{"n": 1}\n{"n": 2}\n')
        assert "does not answer" in sarit(node, "export", "shop/orders", file, code=1)[1]
        sarit(node, "export", "shop/orders", file, *at)
        said = sarit(node, "import", file, "shop/copies", "--create", *there)[1]
        assert "1 schema registered" in said
        assert sarit(node, "read", "shop/copies", "--decode", *there)[0] == '{"n": 1}\n{"n": 2}\n'
        assert list(other.schemas) == [2]
        other.raw = (500, b"")
        refused = sarit(node, "import", file, "shop/again", "--create", *there, code=1)[1]
        assert "--no-schemas imports the events without their schemas" in refused
        sarit(node, "import", file, "shop/again", "--create", "--no-schemas")
        piped = sarit(node, "export", "shop/orders", "-", "--as", "jsonl")
        assert len(piped[0].splitlines()) == 2
        assert "without the schemas of its events" in piped[1]
