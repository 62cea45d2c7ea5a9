"""Processes of one service see every change; numbers changed at once are all counted."""

import json
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
