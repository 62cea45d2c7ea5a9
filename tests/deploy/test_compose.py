"""The compose files: what Compose takes, services that restart, commands that exist."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.commands import expand, parse
from tests.deploy.tools import check, go_tool

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "compose"
FILES = sorted(FOLDER.glob("*.yaml"))
SERVERS = {"standalone", "store", "controller"}


def services(path: Path) -> dict[str, dict]:
    """The services of a file."""
    return yaml.safe_load(path.read_text())["services"]


def ours(path: Path) -> dict[str, dict]:
    """Those that run the image of Sarit."""
    return {name: service for name, service in services(path).items() if service["image"].startswith("sarit:")}


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_compose_accepts_the_file(path) -> None:
    check(go_tool("compose"), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_image_has_a_version(path) -> None:
    for name, service in services(path).items():
        version = service["image"].rpartition(":")[2]
        assert version not in ("", "latest"), name
        assert any(character.isdigit() for character in version), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_process_restarts_and_is_probed_and_confined(path) -> None:
    for name, service in ours(path).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        if service["command"][0] in SERVERS:  # what runs once has an exit code instead
            assert service["restart"] == "unless-stopped", name
            assert service["healthcheck"]["test"] == ["CMD", "sarit-probe", "readyz"], name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_commands_have_options_that_exist(path) -> None:
    commands = {name: service for name, service in ours(path).items() if service["command"] != ["--help"]}
    assert commands
    for service in commands.values():
        parse([expand(word, {}) for word in service["command"]], service.get("environment"))


def test_bookies_of_the_cluster_have_the_documented_configuration(tmp_path) -> None:
    """Their entry point changes addresses and directories of the file, and nothing else."""
    found = services(FOLDER / "cluster.yaml")
    documented = FOLDER.parent / "bookkeeper" / "bk_server.conf"
    names = {name for name, service in found.items() if service["image"].startswith("apache/bookkeeper:")}
    assert names == {"bookies-init", "bookie-1", "bookie-2", "bookie-3", "autorecovery"}
    for name in names:
        service = found[name]
        assert "../bookkeeper/bk_server.conf:/etc/bookkeeper/bk_server.conf:ro" in service["volumes"], name
        assert not any(key.startswith("BK_") for key in service["environment"]), name
        assert service["restart"] == ("on-failure:10" if name == "bookies-init" else "unless-stopped")
        script = service["entrypoint"][2].replace("$$", "$").replace("/etc/bookkeeper/bk_server.conf", str(documented))
        script = script.replace("/tmp/bk_server.conf", str(tmp_path / name))
        said = subprocess.run(["bash", "-c", script, "echo runs"], capture_output=True, text=True, check=True).stdout
        assert said == "runs\n"
        changed = set((tmp_path / name).read_text().splitlines()) - set(documented.read_text().splitlines())
        assert changed == {
            "metadataServiceUri=zk+longhierarchical://zookeeper:2181/ledgers",
            "journalDirectories=/opt/bookkeeper/data/journal",
            "ledgerDirectories=/opt/bookkeeper/data/ledgers",
        }
    assert "initnewcluster" in found["bookies-init"]["command"][0]
