"""A real S3 server for tests, on a free port of this machine: versitygw where it is found, else moto.

versitygw keeps buckets as folders of a directory; it is found in PATH or `.cache/go/bin`
(docs/internals/test-environment.md says how it gets there).  SARIT_S3_SERVER=moto, =versitygw or =minio decides.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.ports import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
BUCKET = "sarit-test"
START_SECONDS = 300


@dataclass(frozen=True)
class S3Server:
    kind: str
    endpoint: str
    bucket: str
    environ: dict[str, str]
    pid: int


def binary_of(name: str) -> str | None:
    """The path of a server's binary, or None."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{ROOT / '.cache' / 'go' / 'bin'}")


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, f"the S3 server ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"the S3 server does not answer: {log.read_text()[-2000:]}"
            time.sleep(0.05)


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Start a server that stores its data in `directory`; one bucket is there."""
    kind = os.environ.get("SARIT_S3_SERVER", "") or ("versitygw" if binary_of("versitygw") else "moto")
    binary = binary_of(kind)
    assert binary or kind == "moto", f"SARIT_S3_SERVER={kind}, but there is no {kind}"
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    key, secret = "testkey1", "testsecret1"
    log = directory / "server.log"
    data = directory / "data"
    (data if kind == "moto" else data / BUCKET).mkdir(parents=True)
    credentials = ["--access", key, "--secret", secret, "--region", "us-east-1", "--quiet"]
    command = {
        "versitygw": [str(binary), "--port", f"127.0.0.1:{port}", *credentials, "posix", str(data)],
        "minio": [str(binary), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(data)],
        "moto": [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
    }[kind]
    users = {"MINIO_ROOT_USER": key, "MINIO_ROOT_PASSWORD": secret, "MINIO_BROWSER": "off"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory, env={**os.environ, **users})
    try:
        _wait_for(port, process, log)
        if kind == "moto":
            made = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(made, timeout=START_SECONDS).close()
        yield S3Server(
            kind,
            endpoint,
            BUCKET,
            {
                "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret,
            },
            process.pid,
        )  # fmt: skip
    finally:
        process.kill()
        process.wait()
