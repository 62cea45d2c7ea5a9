"""Processes of one service see every change; numbers changed at once are all counted."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import sarit
from tests.nodes import RunningNode

PROGRAM = Path(__file__).parents[2] / "examples" / "shared_configuration" / "service.py"


def test_all_processes_follow_the_settings(tmp_path) -> None:
    with RunningNode(tmp_path / "node") as node:
        with sarit.connect(node.controller) as client:
            client.create_scope("app")
        command = [sys.executable, str(PROGRAM), "--controller", node.controller]
        services = [
            subprocess.Popen([*command, "serve", "app/settings"], stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        try:
            for service in services:
                assert json.loads(service.stdout.readline()) == {"greeting": "Hi", "limit": 10}
            subprocess.run([*command, "set", "app/settings", "greeting", '"Hello"'], check=True)
            adding = [subprocess.Popen([*command, "add", "app/settings", "limit", "1"]) for _ in range(3)]
            assert [process.wait(30) for process in adding] == [0, 0, 0]
            for service in services:
                seen = {}
                while seen.get("limit") != 13:
                    seen = json.loads(service.stdout.readline())
                assert seen == {"greeting": "Hello", "limit": 13}
        finally:
            for service in services:
                service.kill()
                service.wait()


def test_program_started_before_its_node_waits_for_it(tmp_path) -> None:
    """All examples ended at once when the node was still starting."""
    node = RunningNode(tmp_path / "node")
    with node, sarit.connect(node.controller) as client:
        client.create_scope("app")
    with socket.create_server(("127.0.0.1", int(node.controller.rpartition(":")[2]))) as early:
        command = [sys.executable, str(PROGRAM), "--controller", node.controller]
        setting = subprocess.Popen([*command, "set", "app/settings", "limit", "1"])
        early.accept()[0].close()  # it has tried, and there was no node
    try:
        with node:
            assert setting.wait(60) == 0
    finally:
        setting.kill()
        setting.wait()
