"""The service files of systemd: valid, hardened, and their commands start a node."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from tests.deploy.commands import expand, parse
from tests.nodes import SARIT, RunningNode

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.iterdir())
# `systemd-analyze security` gives 0.0 (nothing allowed) to 10.0; here ten times that.
EXPOSURE = 20

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")


class _Unit(RawConfigParser):
    """A unit file; of a setting that is given twice the last counts, which is enough here."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, delimiters=("=",))
        self.read(UNITS / name)

    def optionxform(self, optionstr: str) -> str:
        """Names as they are."""
        return optionstr


def command_of(name: str, **values: str) -> list[str]:
    """The arguments of `sarit` in a unit, with the variables of systemd."""
    line = _Unit(name)["Service"]["ExecStart"].replace("%H", "host").replace("%i", "1")
    known = {"STATE_DIRECTORY": "/var/lib/sarit", "CONFIGURATION_DIRECTORY": "/etc/sarit", "SARIT_OPTIONS": ""}
    return [word for part in shlex.split(line)[1:] for word in expand(part, known | values).split()]


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_accepts_each_unit_without_a_word(name, tmp_path) -> None:
    text = (UNITS / name).read_text().replace("/opt/sarit/bin/sarit", SARIT)
    (tmp_path / name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True)
    # It also verifies what the unit pulls in, and says what is wrong with the units of this machine.
    words = [line for line in done.stderr.splitlines() if "sarit" in line]
    assert (done.returncode, words) == (0, [])


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_each_unit_may_do_little(name) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", UNITS / name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_each_unit_restarts_with_limits_and_waits_for_the_flush(name) -> None:
    unit = _Unit(name)
    assert unit["Service"]["Restart"] == "on-failure"
    assert int(unit["Unit"]["StartLimitBurst"]) > 0
    least = {"sarit.service": 10, "sarit-store@.service": 60, "sarit-controller@.service": 5}[name]
    assert int(unit["Service"]["TimeoutStopSec"].removesuffix("s")) > least


def test_commands_of_the_cluster_have_options_that_exist(tmp_path) -> None:
    (tmp_path / "cluster.toml").write_text('cluster = "zookeeper://127.0.0.1:2181/first"\n')
    store = parse(command_of("sarit-store@.service", CONFIGURATION_DIRECTORY=str(tmp_path)))
    controller = parse(command_of("sarit-controller@.service", CONFIGURATION_DIRECTORY=str(tmp_path)))
    assert store["name"] == "host-1"
    assert store["cluster"] == controller["cluster"] == "zookeeper://127.0.0.1:2181/first"


def test_command_of_the_node_starts_one_that_stops_in_time(tmp_path) -> None:
    verb, data, *rest = command_of(
        "sarit.service", STATE_DIRECTORY=str(tmp_path / "data"), SARIT_OPTIONS="--memory 512M"
    )
    assert (verb, data, rest) == ("standalone", f"--data-dir={tmp_path / 'data'}", ["--memory", "512M"])
    with RunningNode(tmp_path / "data", *rest) as node:
        assert node.stop() == 0
