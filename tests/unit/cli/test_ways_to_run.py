"""Each option of each server process works in every way to run that has its role, or is refused with one reason."""

import pytest
from click.testing import CliRunner

from sarit.cli import configured_commands as configured
from sarit.cli.configured_commands import OneStart, configured_commands, settable, variable_of
from sarit.cli.main import cli

COMMANDS = {name: configured_commands()[name] for name in ("standalone", "store", "controller", "worker")}
CLUSTER = ("store", "controller", "worker")
# What a process of a cluster has instead.
INSTEAD = {
    "data-dir": "a store keeps nothing on its machine",
    "controller-port": "it has one port, --port",
    "store-port": "it has one port, --port",
    "one-port": "it has one port, --port",
    "index-storage": "`sarit cluster init --index` says where indexes are",
    "processes": "each process of a cluster is started by itself",
    "allow-damaged": "a store serves the containers that are not damaged anyway",
    "accept-data-loss": "no process of a cluster owns all of its data",
    "dev": "a cluster is more than one process",
    "profile": "a small machine runs a node",
}
ABSENT = {
    **{(name, way): why for name, why in INSTEAD.items() for way in CLUSTER},
    **{
        (name, "controller"): "a controller holds no data"
        for name in ("containers", "storage", "log", "index", "memory", "scrub", "weight", "id")
    },
    **{
        (name, "store"): "controllers do it"
        for name in (
            "retention-interval", "watermark-interval", "expect", "registry", "registry-port", "catalogs", "jobs"
        )
    },
    **{
        (name, "worker"): "it holds no data, and no client calls it"
        for name in ("containers", "storage", "log", "index", "memory", "scrub", "weight", "id", "port", "advertise")
    },
    **{
        (name, "worker"): "controllers do it"
        for name in (
            "retention-interval", "watermark-interval", "scaling-windows", "scaling-cool-down", "expect", "registry",
            "registry-port",
        )
    },
    ("jobs", "worker"): "it does nothing else",
    **{(name, "standalone"): "a node is no cluster" for name in ("cluster", "machine", "weight", "id", "expect")},
    ("port", "standalone"): "it has two ports, --controller-port and --store-port",
    ("index", "standalone"): "--index-storage says where indexes are",
}  # fmt: skip
REFUSED_WITH_PROCESSES = {
    "one-port": "each store has a port of its own",
    "profile": "each process needs a container",
}
VALUES = {
    "data-dir": "'d'", "host": "'127.0.0.1'", "controller-port": "7", "store-port": "9", "containers": "4",
    "storage": "'file:///s'", "index-storage": "'s3://bucket/p'", "log": "'bookkeeper://zk:2181/l'", "memory": "'2G'",
    "scrub": "'1M'", "http-port": "90", "registry": "'on'", "registry-port": "91", "jobs": "'off'",
    "advertise": "'n1'", "allow-damaged": "true", "one-port": "true",
    "profile": "'edge'",
}  # fmt: skip


def names(command: str) -> set[str]:
    once = [option for option in COMMANDS[command].params if isinstance(option, OneStart)]
    return {max(option.opts, key=len).lstrip("-") for option in (*settable(COMMANDS[command]), *once)}


def test_each_option_is_known_to_each_command_or_has_its_reason():
    everything = set().union(*map(names, COMMANDS))
    for command in COMMANDS:
        missing = everything - names(command)
        reasons = {name for name, way in ABSENT if way == command}
        assert missing == reasons, f"{command}: options without it, and those with a reason, differ"


@pytest.mark.parametrize("name", sorted(VALUES))
def test_options_of_a_node_work_with_several_processes(name, monkeypatch, tmp_path):
    for option in (option for each in configured_commands().values() for option in settable(each)):
        monkeypatch.delenv(variable_of(option), raising=False)
    monkeypatch.setattr(configured, "DEFAULT_CONFIG", tmp_path / "none")
    for processes in (1, 2):
        path = tmp_path / "sarit.toml"
        path.write_text(f"[standalone]\nprocesses = {processes}\n{name} = {VALUES[name]}\n")
        done = CliRunner().invoke(cli, ["config", "check", str(path), "--for", "standalone"])
        reason = REFUSED_WITH_PROCESSES.get(name) if processes > 1 else None
        assert done.exit_code == (2 if reason else 0), done.output
        assert (reason or "checked for standalone") in done.output
