"""The service files of systemd: valid, hardened, and their commands start a node."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from sarit.cli.dev_ca import make_certificates
from sarit.cli.security_options import security_of
from sarit.process.security import Security
from tests.deploy.commands import expand, parse
from tests.nodes import SARIT, RunningNode
from tests.security.running import write_files

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.glob("*.service"))
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
    """The arguments of `sarit` in a unit, or in a file that adds to one, with the variables of systemd."""
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
    least = {
        "sarit.service": 10,
        "sarit-store@.service": 60,
        "sarit-controller@.service": 5,
        "sarit-worker@.service": 10,
    }[name]
    assert int(unit["Service"]["TimeoutStopSec"].removesuffix("s")) > least


@needs_systemd
@pytest.mark.parametrize("name", ["sarit.socket", "sarit-controller@.socket"])
def test_socket_units_are_accepted_and_have_the_addresses_of_the_options(name, tmp_path) -> None:
    for each in (name, name.replace(".socket", ".service")):
        (tmp_path / each).write_text((UNITS / each).read_text().replace("/opt/sarit/bin/sarit", SARIT))
    done = subprocess.run(
        ["systemd-analyze", "verify", name.replace("@", "@1")], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    words = [line for line in done.stderr.splitlines() if "sarit" in line]
    assert (done.returncode, words) == (0, [])
    listed = re.findall(r"^ListenStream=(.*)$", (UNITS / name).read_text(), re.MULTILINE)
    if name == "sarit.socket":
        given = parse(command_of("sarit.service"))
        ports = [given["controller_port"], given["store_port"]]
    else:
        (tmp_path / "cluster.toml").write_text('cluster = "zookeeper://127.0.0.1:2181/first"\n')
        given = parse(command_of("sarit-controller@.service", CONFIGURATION_DIRECTORY=str(tmp_path)))
        ports = [given["port"]]
    assert listed == [f"{given['host']}:{port}" for port in ports]


def test_commands_of_the_cluster_have_options_that_exist(tmp_path) -> None:
    (tmp_path / "cluster.toml").write_text('cluster = "zookeeper://127.0.0.1:2181/first"\n')
    store = parse(command_of("sarit-store@.service", CONFIGURATION_DIRECTORY=str(tmp_path)))
    controller = parse(command_of("sarit-controller@.service", CONFIGURATION_DIRECTORY=str(tmp_path)))
    worker = parse(command_of("sarit-worker@.service", CONFIGURATION_DIRECTORY=str(tmp_path)))
    assert worker["cluster"] == store["cluster"]
    assert store["name"] == "host-1"
    assert store["cluster"] == controller["cluster"] == "zookeeper://127.0.0.1:2181/first"


def test_command_of_the_node_starts_one_that_stops_in_time(tmp_path) -> None:
    verb, data, *rest = command_of(
        "sarit.service", STATE_DIRECTORY=str(tmp_path / "data"), SARIT_OPTIONS="--memory 512M"
    )
    assert (verb, data, rest) == ("standalone", f"--data-dir={tmp_path / 'data'}", ["--memory", "512M"])
    with RunningNode(tmp_path / "data", *rest) as node:
        assert node.stop() == 0


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_accepts_each_unit_with_tls_and_users(name, tmp_path) -> None:
    drop_in = tmp_path / f"{name}.d" / "secured.conf"
    drop_in.parent.mkdir()
    for source, target in ((UNITS / name, tmp_path / name), (UNITS / "secured" / f"{name}.conf", drop_in)):
        target.write_text(source.read_text().replace("/opt/sarit/bin/sarit", SARIT))
    unit = name.replace("@", "@1")
    environ = os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, env=environ)
    words = [line for line in done.stderr.splitlines() if "sarit" in line]
    assert (done.returncode, words) == (0, [])
    # It was read: what it adds is refused when it is wrong.
    drop_in.write_text("[Service]\nNoSuchSetting=1\n")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, env=environ)
    assert "NoSuchSetting" in done.stderr


def test_command_with_credentials_starts_a_node_with_tls_and_users(tmp_path) -> None:
    credentials = tmp_path / "credentials"
    config = write_files(credentials)
    files = make_certificates(tmp_path / "made", (), 1)
    for name, path in (("server.pem", "server"), ("server-key.pem", "server key"), ("ca.pem", "ca")):
        files[path].rename(credentials / name)
    (credentials / "keys").rename(credentials / "token-keys")
    listed = {line.partition(":")[0].partition("=")[2] for line in _lines("sarit.service") if "LoadCredential" in line}
    assert listed == {path.name for path in credentials.iterdir()}
    given = parse(
        command_of("secured/sarit.service.conf", STATE_DIRECTORY=str(tmp_path), CREDENTIALS_DIRECTORY=str(credentials))
    )
    assert given["users"] == Path(config.users)
    assert repr(Security(security_of(given))) == "<Security, TLS, 3 users>"


@pytest.mark.parametrize("name", NAMES)
def test_units_with_tls_and_users_differ_in_that_alone(name, tmp_path) -> None:
    (tmp_path / "cluster.toml").write_text('cluster = "zookeeper://127.0.0.1:2181/first"\n')
    known = {"CONFIGURATION_DIRECTORY": str(tmp_path), "CREDENTIALS_DIRECTORY": "/run/c"}
    plain, secured = command_of(name, **known), command_of(f"secured/{name}.conf", **known)
    assert [word for word in secured if "/run/c/" not in word] == plain
    assert len(secured) - len(plain) == 5
    parse(secured)


def _lines(name: str) -> list[str]:
    return (UNITS / "secured" / f"{name}.conf").read_text().splitlines()
