"""Options that contradict each other: the error names both, each with its file and line, before anything runs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sarit.cli import configured_commands as configured
from sarit.cli.configured_commands import configured_commands, settable, variable_of
from sarit.cli.main import cli

CLUSTER = ("cluster = 'zookeeper://zk:2181/first'",)
PROCESSES = (("standalone", ()), ("store", CLUSTER), ("controller", CLUSTER))
# Of each process: lines of its file, and the options that the error must name.
OF_ALL = [
    (("tls-cert = '/c'",), ("tls-cert",)),
    (("tls-key = '/k'",), ("tls-key",)),
    (("tls-ca = '/a'",), ("tls-ca",)),
    (("tls-client-certs = true", "tls-cert = '/c'", "tls-key = '/k'"), ("tls-client-certs",)),
    (("users = '/u'",), ("users",)),
    (("token-keys = '/k'",), ("token-keys",)),
    (("oidc-audience = 'a'",), ("oidc-audience",)),
    (("oidc-issuer = 'https://i'",), ("oidc-issuer",)),
    (("oidc-issuer = 'https://i'", "oidc-audience = 'a'"), ("oidc-issuer",)),
    (("audit-log = '/a'",), ("audit-log",)),
    (("scaling-windows = [4, 3, 2, 1]",), ("scaling-windows",)),
]
OF_SOME = [
    ("standalone", ("controller-port = 7", "store-port = 7"), ("controller-port", "store-port")),
    ("standalone", ("http-port = 7", "controller-port = 7"), ("http-port", "controller-port")),
    ("standalone", ("http-port = 7", "store-port = 7"), ("http-port", "store-port")),
    ("standalone", ("registry = 'on'", "registry-port = 7", "http-port = 7"), ("registry-port", "http-port")),
    ("standalone", ("registry = 'on'", "registry-port = 7", "store-port = 7"), ("registry-port", "store-port")),
    ("standalone", ("registry = 'on'", "registry-port = 'off'", "http-port = 'off'"), ("registry", "http-port")),
    ("standalone", ("http-port = 7", "store-port = 9", "processes = 3", "containers = 3"), ("http-port", "store-port")),
    ("standalone", ("processes = 2", "one-port = true"), ("processes", "one-port")),
    ("standalone", ("processes = 9", "containers = 3"), ("processes", "containers")),
    ("standalone", ("processes = 2", "store-port = 9", "controller-port = 10"), ("store-port", "controller-port")),
    ("standalone", ("one-port = true", "advertise = 'n1:1:2'"), ("one-port", "advertise")),
    ("standalone", ("processes = 2", "advertise = 'n1:1:65535'"), ("processes", "advertise")),
    ("standalone", ("memory = '64M'", "containers = 9"), ("memory",)),
    ("store", (*CLUSTER, "http-port = 7", "port = 7"), ("http-port", "port")),
    ("controller", (*CLUSTER, "http-port = 7", "port = 7"), ("http-port", "port")),
    ("controller", (*CLUSTER, "registry = 'on'", "registry-port = 7", "port = 7"), ("registry-port", "port")),
    ("controller", (*CLUSTER, "registry = 'on'", "registry-port = 7", "http-port = 7"), ("registry-port", "http-port")),
]
CASES = [(command, (*needed, *lines), named) for command, needed in PROCESSES for lines, named in OF_ALL] + OF_SOME


@pytest.mark.parametrize(("command", "lines", "named"), CASES)
def test_both_are_named_with_file_and_line(command, lines, named, monkeypatch, tmp_path):
    for option in (option for each in configured_commands().values() for option in settable(each)):
        monkeypatch.delenv(variable_of(option), raising=False)
    monkeypatch.setattr(configured, "DEFAULT_CONFIG", tmp_path / "none")
    keys = {line.partition(" ")[0]: number for number, line in enumerate(lines, 2)}
    path = tmp_path / "sarit.toml"
    path.write_text("\n".join((f"[{command}]", *lines)))
    done = CliRunner().invoke(cli, ["config", "check", str(path), "--for", command])
    assert done.exit_code == 2, done.output
    for name in named:
        assert f"--{name}: {path}:{keys[name]}" in done.output
