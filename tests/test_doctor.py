"""`sarit doctor` beside real nodes, and on a machine with faults."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import pytest

from benchmarks.peers.ports import free_ports
from sarit.ops.doctor import check_log_ins
from sarit.process.security import SecurityConfig
from sarit.process.settings import NodeConfig
from tests import fork_server
from tests.contract.s3 import s3_server
from tests.faults.test_full_disk import small_disk  # noqa: F401 - a fixture
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode


def doctor(*options, env=None, limit=None):
    """What it found, by check; its exit code."""
    command = [SARIT, "doctor", "--format", "json", *map(str, options)]
    if limit is not None:
        command = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *command]
    environ = {**os.environ, "SARIT_HTTP_PORT": "off", **(env or {})}
    if limit is None:
        done = fork_server.run(command, text=True, timeout=HANG_SECONDS, check=False, env=environ)
    else:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False, env=environ)
    assert done.stdout, done.stderr
    return {found["check"]: found for found in json.loads(done.stdout)}, done.returncode


def test_ports_are_free_or_answered_by_sarit_or_taken_by_something_else(tmp_path):
    first, second, http, other = free_ports(4)
    ports = ("--controller-port", first, "--store-port", second, "--http-port", http)
    found, code = doctor("--data-dir", tmp_path / "data", *ports)
    assert code == 0
    assert {found[f"port {port}"]["text"].split(" ")[0] for port in (first, second, http)} == {"free"}
    with RunningNode(tmp_path / "data", *map(str, ports)), socket.create_server(("127.0.0.1", other)) as silent:
        found, code = doctor("--data-dir", tmp_path / "data", *ports)
        assert code == 0
        assert "answered by Sarit: a controller" in found[f"port {first}"]["text"]
        assert "answered by Sarit: a store" in found[f"port {second}"]["text"]
        assert "answered by Sarit: the node, version" in found[f"port {http}"]["text"]
        # Of Sarit, but not what the option is for; and something that says nothing.
        swapped = ("--controller-port", second, "--store-port", first, "--http-port", other)
        found, code = doctor("--data-dir", tmp_path / "data", *swapped)
        assert code == 1
        assert {found[f"port {port}"]["level"] for port in (first, second, other)} == {"FAIL"}
        assert "--http-port" in found[f"port {other}"]["advice"]
        assert "says nothing for" in found[f"port {other}"]["text"], "it is not known what has it"
        assert "no Sarit" in found[f"port {first}"]["text"]
        silent.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data.log"], "no probe is left"


def test_full_disk_and_few_descriptors_fail_with_advice(small_disk):  # noqa: F811
    with (small_disk / "other").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 950 << 20)
    found, code = doctor("--data-dir", small_disk / "data", "--controller-port", 0, "--store-port", 0, limit=128)
    assert code == 1
    assert found["disk space"]["level"] == found["open files"]["level"] == "FAIL"
    assert "choose a larger volume" in found["disk space"]["advice"]
    assert "ulimit -n" in found["open files"]["advice"]
    assert found["disk sync"]["level"] in ("OK", "WARN")
    assert [path.name for path in small_disk.iterdir()] == ["other"], "no probe is left"


def test_directories_of_somebody_else_fail(tmp_path):
    (tmp_path / "etc/passwd").mkdir(parents=True)
    storage = f"file://{tmp_path}/etc"
    ports = ("--controller-port", 0, "--store-port", 0)
    found, code = doctor("--data-dir", tmp_path / "etc", "--storage", storage, *ports)
    assert code == 1
    for check in ("data directory", "long-term storage"):
        assert found[check]["level"] == "FAIL"
        assert "is not empty and not Sarit's (it holds passwd)" in found[check]["text"]
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["passwd"]


@pytest.mark.parametrize(
    ("options", "level", "text"),
    [
        (["--host", "0.0.0.0"], "WARN", "clients get 127.0.0.1"),
        (["--host", "0.0.0.0", "--advertise", "127.0.0.1"], "WARN", "other machines cannot reach it"),
        (["--advertise", "192.0.2.1"], "WARN", "no address of this machine"),
        (["--advertise", "no.such.name.invalid"], "FAIL", "cannot be resolved"),
        ([], "OK", "clients of this machine alone"),
    ],
)
def test_advertised_address_is_examined(tmp_path, options, level, text):
    found, _ = doctor("--data-dir", tmp_path / "data", "--controller-port", 0, "--store-port", 0, *options)
    assert found["advertised address"]["level"] == level
    assert text in found["advertised address"]["text"]


@pytest.mark.parametrize(
    ("host", "security", "level", "text"),
    [
        ("127.0.0.1", SecurityConfig(users="u", token_keys="k"), "OK", "this machine alone"),
        ("0.0.0.0", SecurityConfig(), "WARN", "whoever reaches the ports"),
        ("0.0.0.0", SecurityConfig(users="u", token_keys="k"), "FAIL", "in clear text"),
        ("0.0.0.0", SecurityConfig(users="u", token_keys="k", plain_passwords=True), "WARN", "in clear text"),
        ("0.0.0.0", SecurityConfig("c", "k", users="u", token_keys="k"), "OK", "over TLS"),
        ("no.such.name.invalid", SecurityConfig(), "FAIL", "cannot be resolved"),
    ],
)
def test_passwords_in_clear_text_are_found(host, security, level, text):
    found = check_log_ins(NodeConfig("/", host, security=security))
    assert found.level == level
    assert text in found.text


def test_storage_is_written_read_listed_and_deleted(tmp_path):
    with s3_server(tmp_path) as s3:
        url = f"s3://{s3.bucket}/doctor"
        options = ("--data-dir", tmp_path / "node", "--controller-port", 0, "--store-port", 0)
        found, code = doctor(*options, "--storage", url, "--index-storage", url, env=s3.environ)
        assert (found["long-term storage"]["level"], found["index storage"]["level"], code) == ("OK", "OK", 0)
        found, code = doctor(*options, "--storage", "s3://no-such-bucket/x", env=s3.environ)
        assert (found["long-term storage"]["level"], code) == ("FAIL", 1)
        assert "write" in found["long-term storage"]["advice"]
    (tmp_path / "chunks").write_text("in its place")
    found, code = doctor(*options, "--storage", f"file://{tmp_path}/chunks")
    assert (found["long-term storage"]["level"], code) == ("FAIL", 1)


def test_options_of_a_node_examine_a_node_also_with_a_cluster_in_the_environment(tmp_path):
    environ = {"SARIT_CLUSTER": "zookeeper://127.0.0.1:1/test"}
    # It was: no such option '--data-dir'.
    found, _ = doctor("--data-dir", tmp_path / "data", env=environ)
    assert "cluster" not in found
    assert "disk sync" in found


def test_cluster_without_zookeeper_fails_with_advice():
    (port,) = free_ports(1)
    found, code = doctor("--for", "store", "--cluster", f"zookeeper://127.0.0.1:{port}/test", "--port", 0)
    assert code == 1
    assert "start ZooKeeper" in found["cluster"]["advice"]
