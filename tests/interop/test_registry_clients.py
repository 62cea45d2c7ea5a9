"""Clients of schema registries for Node.js and Go, unmodified, on the registry of a node: `make interop-registry`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import secured
from tests.nodes import RunningNode

PROGRAMS = Path(__file__).parent / "registry"
INSTALL_SECONDS = 600

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(secured.ON, reason="the programs log in nowhere: confluent-kafka's client does"),
]


@pytest.fixture
def url(tmp_path):
    with RunningNode(tmp_path / "data", "--registry", "on", "--registry-port", "0") as node:
        yield f"http://{node.registry}"


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_clients_of_node_js(url, tmp_path) -> None:
    assert shutil.which("npm"), "this needs Node.js with npm"
    for name in ("package.json", "clients.js"):
        shutil.copy(PROGRAMS / name, tmp_path)
    _run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=tmp_path)
    assert "@kafkajs/confluent-schema-registry: PROTOBUF" in _run("node", "clients.js", url, cwd=tmp_path)


def test_client_of_go(url) -> None:
    assert shutil.which("go"), "this needs Go"
    assert "franz-go: all calls" in _run("go", "run", ".", url, cwd=PROGRAMS / "go")
