"""`--format json`: every command whose result a program may want has it, and no other spelling."""

import json

import click
import pytest
from click.testing import CliRunner

from sarit.cli.main import cli

# What they print is no result: a server's life, a script, a file to edit.
WITHOUT = {
    "standalone", "store", "controller", "worker", "completion", "config example",
    "cluster init",  # its options are keys of the file of options
}  # fmt: skip


def commands(command, *path):
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(click.Context(command)):
        yield from commands(command.get_command(click.Context(command), name), *path, name)


COMMANDS = dict(commands(cli))


def test_commands_have_one_option_for_the_format():
    spelled = {
        name: {option for param in command.params for option in param.opts} & {"--format", "--json", "--output"}
        for name, command in COMMANDS.items()
    }
    assert {name for name, found in spelled.items() if not found} == WITHOUT
    assert {option for found in spelled.values() for option in found} == {"--format"}


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["context", "add", "here", "--controller", "h:1"], {"name": "here", "controller": "h:1", "current": False}),
        (["context", "use", "here"], {"name": "here", "controller": "h:1"}),
        (["context", "use", "--none"], {"name": None, "controller": None}),
        (["context", "delete", "here"], {"name": "here", "deleted": True}),
        (["config", "check", "--for", "standalone"], {"file": None, "checked": ["standalone"]}),
    ],
)
def test_results_are_documents(words, result, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SARIT_CONFIG", raising=False)
    if "here" in words and words[1] != "add":
        CliRunner().invoke(cli, ["context", "add", "here", "--controller", "h:1"])
    done = CliRunner().invoke(cli, [*words, "--format", "json"])
    assert json.loads(done.stdout) == result, done.output
