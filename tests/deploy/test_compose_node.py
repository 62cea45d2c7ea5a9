"""The compose files of one node without a container engine: their service, by its own command, as a process.

`secured.yaml` gets the folder of secrets that the commands at its head make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.peers.ports import free_ports
from tests.deploy.commands import expand
from tests.deploy.test_compose import FOLDER, ours
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT

pytestmark = pytest.mark.long

PROBE = FOLDER.parent / "docker" / "probe.py"
PASSWORD = "a password of this test"
HEAD = re.compile(r"^#     (.*?)(?:  +# .*)?$", re.MULTILINE)


def make_secrets(directory: Path) -> None:
    """Run the commands at the head of the file, but for those that need an engine or its user."""
    commands = HEAD.findall((FOLDER / "secured.yaml").read_text())
    mine = [line for line in commands if not line.startswith(("docker ", "sudo "))]
    assert len(mine) == 3, commands
    path = f"{Path(SARIT).parent}:{os.environ['PATH']}"
    for line in mine:
        answer = PASSWORD + "\n" if " user add " in line else ""
        line = line.replace("secrets", str(directory)) + (" --password-file -" if answer else "")
        done = subprocess.run(line, shell=True, text=True, input=answer, env={"PATH": path}, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["compose.yaml", "secured.yaml"])
def test_node_of_the_file_serves_by_its_own_command(name, tmp_path):
    secrets, secured = tmp_path / "secrets", name == "secured.yaml"
    if secured:
        make_secrets(secrets)
    service = ours(FOLDER / name)["node"]
    controller, store, http = free_ports(3)
    here = {"/var/lib/sarit": str(tmp_path / "data"), "/run/sarit": str(secrets), "--host=0.0.0.0": "--host=127.0.0.1"}
    command = [expand(word, {}) for word in service["command"]]
    for word, replacement in here.items():
        command = [each.replace(word, replacement) for each in command]
    command += [f"--controller-port={controller}", f"--store-port={store}", f"--http-port={http}"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    address = f"tls://localhost:{controller}" if secured else f"127.0.0.1:{controller}"
    client = environ | {"SARIT_CONTROLLER": address}
    if secured:
        client |= {"SARIT_CA_FILE": str(secrets / "ca.pem"), "SARIT_USER": "root", "SARIT_PASSWORD": PASSWORD}

    def run(*arguments: str, data: str = "") -> str:
        done = subprocess.run([SARIT, *arguments], text=True, input=data, env=client, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with (tmp_path / "log").open("w") as log, subprocess.Popen([SARIT, *command], env=environ, stderr=log) as node:
        try:
            kind, _, what = service["healthcheck"]["test"]
            assert kind == "CMD"
            asking = {"SARIT_HTTP_PORT": str(http)}
            end = time.monotonic() + HANG_SECONDS
            while subprocess.run([sys.executable, "-IS", PROBE, what], env=asking).returncode:
                assert time.monotonic() < end
                assert node.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.2)
            run("scope", "create", "demo")
            run("stream", "create", "demo/events")
            run("write", "demo/events", data="one\ntwo\n")
            assert run("read", "demo/events").splitlines() == ["one", "two"]
            if secured:
                done = subprocess.run([SARIT, "scope", "list"], env=client | {"SARIT_PASSWORD": "wrong"}, text=True,
                                      capture_output=True)  # fmt: skip
                assert done.returncode != 0
                assert "password" in done.stderr
            node.terminate()
            assert node.wait(int(service["stop_grace_period"].rstrip("s"))) == 0, (tmp_path / "log").read_text()
        finally:
            node.kill()
