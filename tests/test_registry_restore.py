"""The schema registry of a node that was restored from a backup: no number that was given since comes back."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_backup import create, run

REGISTRY = ("--registry", "on", "--registry-port", "0")
STEP = 1_000_000


def call(registry: str, method: str, path: str, body: object = None):
    """Ask the registry at HOST:PORT."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{registry}{path}", data, method=method)
    request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
        return json.loads(answer.read())


def register(registry: str, subject: str, *fields: str) -> tuple[int, int]:
    """Return the schema id and the version."""
    record = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": "long", "default": 0} for name in fields],
    }
    body = {"schema": json.dumps(record)}
    id = call(registry, "POST", f"/subjects/{subject}/versions", body)["id"]
    return id, call(registry, "POST", f"/subjects/{subject}", body)["version"]


@pytest.mark.parametrize("options", [(), pytest.param(("--processes", "2"), marks=pytest.mark.long)])
def test_restored_registry_gives_no_number_again(tmp_path, options):
    data, place, new = tmp_path / "data", tmp_path / "backups", tmp_path / "new"
    with RunningNode(data, *REGISTRY, *options) as node:
        assert register(node.registry, "orders", "a") == (1, 1)
        create(place, data)
        # What is given from here on is lost with the node, but events may hold it.
        assert register(node.registry, "orders", "a", "b") == (2, 2)
        assert register(node.registry, "other", "c") == (3, 1)
    run("restore", place, "--data-dir", new)
    with RunningNode(new, *REGISTRY, *options) as node:
        assert call(node.registry, "GET", "/subjects") == ["orders"]
        assert register(node.registry, "orders", "a") == (1, 1), "what the backup holds keeps its numbers"
        assert register(node.registry, "orders", "a", "z") == (STEP + 2, STEP + 2)
    with RunningNode(new, *REGISTRY, *options) as node:
        assert register(node.registry, "orders", "a", "y") == (STEP + 3, STEP + 3), "the numbers rise once a restore"
        create(tmp_path / "second", new)
    run("restore", tmp_path / "second", "--data-dir", tmp_path / "newer")
    with RunningNode(tmp_path / "newer", *REGISTRY, *options) as node:
        assert register(node.registry, "orders", "a", "x") == (2 * STEP + 4, 2 * STEP + 4)
