"""The image: its file, its entry point and its probe."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sarit.cli.dev_ca import make_certificates
from tests.deploy.commands import parse
from tests.deploy.tools import check, python_package

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


def instruction(name: str) -> list[str]:
    """The arguments of each instruction of that name, with continuation lines joined."""
    joined = re.sub(r"\\\n\s*(#.*\n\s*)*", " ", DOCKERFILE)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def test_image_is_pinned_not_root_and_stops_by_sigterm() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-\w+", base)
    assert set(instruction("FROM")) == {"${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"}
    assert instruction("USER") == ["10001:10001"]
    assert instruction("STOPSIGNAL") == ["SIGTERM"]
    assert len(instruction("HEALTHCHECK")) == 1
    locked = (ROOT / "uv.lock").read_text()
    for tool, version in re.findall(r" (uv|hatchling)==(\S+)", DOCKERFILE):
        assert f'name = "{tool}"\nversion = "{version}"' in locked


def test_command_of_the_image_has_options_that_exist() -> None:
    (words,) = instruction("CMD")
    assert parse(json.loads(words))["data_dir"] == Path("/var/lib/sarit")


def test_context_of_the_build_holds_what_is_copied_and_no_more() -> None:
    ignored, *allowed = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    kept = [line.removeprefix("!") for line in allowed if line.startswith("!")]
    copied = [word for line in instruction("COPY") if "--from" not in line for word in line.split()[:-1]]
    sources = [word for word in copied if not word.startswith("--")]
    assert ignored == "*"
    assert sorted(sources) == sorted(kept)
    assert all((ROOT / source).exists() for source in sources)
    assert not any(fnmatch.fnmatch("tests", pattern) for pattern in kept)


@pytest.mark.long
def test_a_linter_of_dockerfiles_finds_nothing() -> None:
    (program,) = python_package("hadolint").rglob("bin/hadolint")
    check(program, "--no-color", DOCKER / "Dockerfile")


def entry(environ: dict[str, str], tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point with a `sarit` that prints its arguments and the variables of AWS."""
    sarit = tmp_path / "sarit"
    sarit.write_text('#!/bin/sh\nprintf "%s\\n" "$*"\nenv | grep ^AWS_ | sort\n')
    sarit.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **environ}
    return subprocess.run(["sh", DOCKER / "entrypoint.sh", *arguments], capture_output=True, text=True, env=environ)


def test_entry_point_takes_secrets_from_files(tmp_path) -> None:
    (tmp_path / "key").write_text("s3 cr$t\n")
    done = entry(
        {"AWS_SECRET_ACCESS_KEY_FILE": str(tmp_path / "key"), "AWS_REGION": "r"}, tmp_path, "store", "--id=a b"
    )
    assert done.stdout.splitlines() == ["store --id=a b", "AWS_REGION=r", "AWS_SECRET_ACCESS_KEY=s3 cr$t"]


def test_entry_point_without_its_secret_starts_nothing(tmp_path) -> None:
    done = entry({"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "none")}, tmp_path, "store")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"AWS_ACCESS_KEY_ID_FILE names {tmp_path / 'none'}, which cannot be read" in done.stderr


class _Probes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 503)
        self.end_headers()
        self.wfile.write(b"recovering\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Probes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def probe(port: int, name: str) -> tuple[int, str]:
    command = [sys.executable, "-IS", DOCKER / "probe.py", name]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SARIT_HTTP_PORT": str(port)})
    return done.returncode, done.stdout.strip()


def test_probe_answers_by_its_exit_code(port) -> None:
    assert probe(port, "livez")[0] == 0
    assert probe(port, "readyz") == (1, "recovering")


def test_probe_asks_a_port_with_tls(tmp_path) -> None:
    made = make_certificates(tmp_path / "ca", ("elsewhere",), 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made["server"], made["server key"])
    with HTTPServer(("127.0.0.1", 0), _Probes) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert probe(server.server_port, "livez")[0] == 0
            assert probe(server.server_port, "readyz") == (1, "recovering")
        finally:
            server.shutdown()


def test_probe_of_a_port_without_a_server_fails(port) -> None:
    with HTTPServer(("127.0.0.1", 0), _Probes) as closed:
        nobody = closed.server_port
    assert probe(nobody, "livez") == (1, "nobody answers")
