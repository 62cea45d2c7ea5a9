"""Spark on a node with users and TLS: options say who we are, and no secret is in what Spark shows or writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests import secured
from tests.nodes import RunningNode
from tests.spark.servers import environment
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600), SPARK_MAY_BE_SLOW]

EVENTS = 40


def test_job_with_a_password_file_writes_and_reads_and_shows_no_secret(tmp_path):
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("Spark needs Java: install a JRE of version 17 or newer")
    password = tmp_path / "password"
    password.write_text(secured.PASSWORD + "\n")
    events = tmp_path / "events"
    events.mkdir()
    options = ["--registry", "on", "--registry-port", "0", *([] if secured.ON else secured.options())]
    with RunningNode(tmp_path / "data", *options) as node:
        address = f"tls://{node.controller.replace('127.0.0.1', 'localhost')}"
        nobody = {name: value for name, value in environment().items() if name not in secured.client_environment("")}
        command = [
            sys.executable,
            "-m",
            "tests.spark.secured_child",
            address,
            str(password),
            secured.files()["ca"],
            str(events),
            str(EVENTS),
            f"https://{node.registry.replace('127.0.0.1', 'localhost')}",
        ]
        done = subprocess.run(command, env=nobody, capture_output=True, text=True, check=False, timeout=500)
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown[-6000:]
    assert f"read {EVENTS} and then {2 * EVENTS}" in shown
    assert f"read {EVENTS} by their schema" in shown
    assert "user or password is wrong" in shown, "the error of a wrong password"
    assert "asks who you are" in shown.partition("refused by the registry")[2], "the registry's error of one"
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    written = b"".join(path.read_bytes() for path in logs)
    assert b"SparkListenerSQLExecutionStart" in written
    for secret in (secured.PASSWORD, secured.client_environment("")["pravega_client_auth_token"], "wrong-password"):
        assert secret not in shown
        assert secret.encode() not in written
