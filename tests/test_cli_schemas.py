"""`sarit schema`, as a user types it, against the registry of a node."""

from __future__ import annotations

import json
import os
from urllib.request import urlopen

import pytest

from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode

POINT = '{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]}'
WIDER = '{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}'
USER = '{"type": "record", "name": "Line", "fields": [{"name": "from", "type": "Point"}]}'


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    directory = tmp_path_factory.mktemp("nodes")
    registry = ("--registry", "on", "--registry-port", "0")
    # The URL is for who asks a registry: a node does not take it for its own option.
    env = {**os.environ, "SARIT_REGISTRY_URL": "http://127.0.0.1:1"}
    http = ("--http-port", "0")
    with (
        RunningNode(directory / "one", *registry, *http, env=env) as one,
        RunningNode(directory / "two", *registry) as two,
    ):
        yield one, two


def schema(node, *words, stdin="", code=0) -> str:
    env = {"SARIT_REGISTRY_URL": f"http://{node.registry}", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = fork_server.run(
        [SARIT, "schema", *words], input=stdin, text=True, timeout=HANG_SECONDS, check=False, env=env
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_schemas_go_through_their_life_and_to_another_registry(nodes, tmp_path):
    one, two = nodes
    avro = ("-", "--type", "avro")
    assert "version 1: schema id 1" in schema(one, "add", "filler", *avro, stdin='"string"')
    assert "version 1: schema id 2" in schema(one, "add", "point", *avro, stdin=POINT)
    assert "version 1 already: schema id 2" in schema(one, "add", "point", *avro, stdin=POINT)
    refused = schema(one, "add", "point", *avro, stdin='"int"', code=1)
    assert refused.startswith("- ")
    assert "point does not allow this schema, by its compatibility BACKWARD: change the schema" in refused
    assert "not compatible" in schema(one, "check", "point", *avro, stdin='"int"', code=1)
    schema(one, "add", "point", *avro, stdin=WIDER)
    schema(one, "add", ":.team:line", *avro, stdin='"int"')
    schema(one, "add", "line", *avro, "--reference", "Point=point:1", stdin=USER)
    assert "references  Point=point:1" in schema(one, "show", "line")
    schema(one, "compatibility", "set", "FULL", "--subject", "point")
    assert "FULL" in schema(one, "compatibility", "show", "--subject", "point")
    assert "there are " in schema(one, "show", "pont", code=1)
    schema(one, "delete", "point", "--version", "2", "--yes")
    refused = schema(one, "delete", "point", "--version", "1", "--yes", code=1)
    assert "42206" in refused
    rows = json.loads(schema(one, "list", "--latest", "--format", "json"))
    assert {row["subject"]: row["id"] for row in rows} == {"filler": 1, "line": 5, "point": 2, ":.team:line": 4}
    file = str(tmp_path / "all.jsonl")
    assert "5 versions of 4 subjects" in schema(one, "export", file, "--deleted")
    assert "5 versions registered" in schema(two, "import", file)
    assert "0 versions registered, 5 were there" in schema(two, "import", file)
    again = str(tmp_path / "again.jsonl")
    schema(two, "export", again, "--deleted")
    with open(file) as before, open(again) as after:
        assert sorted(before) == sorted(after)
    assert "FULL" in schema(two, "compatibility", "show", "--subject", "point")
    # Out of the mode IMPORT again, and behind all ids that were imported.
    added = schema(two, "add", "new", *avro, stdin='"double"')
    assert int(added.rsplit(" ", 1)[1]) > 5


def test_import_refuses_what_another_registry_has(nodes, tmp_path):
    one, _ = nodes
    file = tmp_path / "other.jsonl"
    file.write_text('{"subject": "taken", "version": 1, "id": 1, "type": "AVRO", "schema": "\\"float\\""}\n')
    schema(one, "add", "holder", "-", "--type", "avro", stdin='"string"')
    refused = schema(one, "import", str(file), code=1)
    assert "version 1 of taken, id 1:" in refused
    assert "--new-ids" in refused
    assert "registered" in schema(one, "import", str(file), "--new-ids")


def test_console_of_the_process_shows_its_registry(nodes):
    one, _ = nodes
    schema(one, "add", "shown/here", "-", "--type", "avro", stdin='"long"')

    def get(path: str):
        with urlopen(f"http://{one.http}/console/api/{path}", timeout=HANG_SECONDS) as reply:
            return json.load(reply)

    assert get("session")["schemas"] is True
    assert [row["group"] for row in get("schemas?q=shown")["rows"]] == ["shown/here"]
    assert get("schemas/version?group=shown%2Fhere&number=1")["text"] == '"long"'
