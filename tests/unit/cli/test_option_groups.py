"""The help of server processes: groups of options, each of which has a place."""

import pytest
from click.testing import CliRunner

from sarit.cli.configured_commands import configured_commands, key_of
from sarit.cli.main import cli
from sarit.cli.option_groups import GROUPS

COMMANDS = configured_commands()
# What says where all else is from, and the one that changes what all others default to.
ON_TOP = {"config", "dev"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_has_a_group(name):
    grouped = {option for group in GROUPS.values() for option in group}
    assert {key_of(option) for option in COMMANDS[name].params} - grouped <= ON_TOP


def test_each_name_of_a_group_is_an_option():
    known = {key_of(option) for command in COMMANDS.values() for option in command.params}
    assert {option for group in GROUPS.values() for option in group} <= known


def test_help_shows_groups_in_their_order_and_no_empty_one():
    shown = CliRunner().invoke(cli, ["standalone", "--help"]).output
    titles = [line.removesuffix(":") for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *GROUPS]
    assert "Cluster:" in shown
    assert "After damage:" not in CliRunner().invoke(cli, ["store", "--help"]).output
