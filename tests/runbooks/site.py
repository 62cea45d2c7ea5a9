"""Machines of a cluster that a runbook is carried out on: folders of this machine, and commands that stand for those of
an operator.

`systemctl` starts and stops the units of a machine, and `bookkeeper` is the command of BookKeeper's distribution.  A
block of the page runs on the machines that its first line names, with the variables of each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import boto3

from benchmarks.peers.maven import class_path
from benchmarks.peers.ports import free_ports
from tests.components.bookkeeper import OPTIONS, addresses, configuration
from tests.components.zookeeper import ZooKeeperServer
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT
from tests.runbooks import systemctl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.s3 import S3Server
    from tests.guides.pages import Block

CONTAINERS = 4
BLOCK_SECONDS = 3 * HANG_SECONDS
# As the unit in deploy/bookkeeper: the HTTP port of the file is the bookie's.
OWN_HTTP_PORT = "-Dorg.apache.bookkeeper.conf.readsystemproperties=true -DhttpServerEnabled=false"
BOOKKEEPER = """#!/bin/bash
case $1 in
    shell) main=org.apache.bookkeeper.bookie.BookieShell; conf=-conf ;;
    bookie) main=org.apache.bookkeeper.server.Main; conf=--conf ;;
    autorecovery) main=org.apache.bookkeeper.replication.AutoRecoveryMain; conf=--conf ;;
esac
exec java {options} $BOOKIE_EXTRA_OPTS -cp '{classes}' $main $conf "$BOOKIE_CONF" "${{@:2}}"
"""


@dataclass
class Machine:
    """A folder with its units; `environ`: what the first block of the page sets on it."""

    name: str
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def unit(self, name: str, command: str, **environ: str) -> None:
        """A unit with this command."""
        lines = [f"export {key}={value!r}" for key, value in environ.items()]
        (self.folder / f"{name}.unit").write_text("\n".join(["cd /tmp", *lines, f"exec {command}", ""]))

    def log(self) -> str:
        """What its units have printed."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))


class Site:
    """ZooKeeper, machines with bookies and one more for later, a machine with stores and a controller, S3."""

    def __init__(self, directory: Path, s3: S3Server) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.bucket = s3.bucket
        self._s3 = s3.environ
        self._make_commands(directory / "bin")
        path = f"{directory / 'bin'}:{os.environ['PATH']}"
        self.environ = {
            **os.environ, **s3.environ, "PATH": path, "SARIT_CLUSTER": self.url("first"), "SARIT_HTTP_PORT": "off",
            "BACKUP": f"s3://{s3.bucket}/backups", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        # No address of a controller: the page names clusters.
        self.environ.pop("SARIT_CONTROLLER", None)
        self.bookies = [self._bookie(f"bookie-{number}", ports) for number, ports in enumerate(_pairs(4), 1)]
        self.spare = self.bookies[3]
        self.bookies[1].unit(
            "bookkeeper-autorecovery", "bookkeeper autorecovery", PATH=path,
            BOOKIE_CONF=self.bookies[1].environ["BOOKIE_CONF"], BOOKIE_EXTRA_OPTS=OWN_HTTP_PORT,
        )  # fmt: skip
        self.servers, self.controller = self._servers()

    def url(self, name: str) -> str:
        """The address of a cluster of this ZooKeeper."""
        return f"zookeeper://{self.zookeeper.hosts}/{name}"

    def name_of(self, bookie: Machine) -> str:
        """As ledgers name it."""
        return f"127.0.0.1:{bookie.environ['PORT']}"

    # -- what a page says ----------------------------------------------------------------------------

    def here(self, text: str) -> str:
        """A block with the addresses of this site in place of those of the page."""
        changes = {
            "zk1:2181,zk2:2181,zk3:2181": self.zookeeper.hosts,
            "s3://bucket/": f"s3://{self.bucket}/",
            "bookie-1:3181": self.name_of(self.bookies[0]),
            "bookie-4:3181": self.name_of(self.spare),
        }
        for old, new in changes.items():
            text = text.replace(old, new)
        return text

    def machines_of(self, block: Block) -> list[Machine]:
        """Where a block runs."""
        spare = [self.spare] if (self.spare.folder / "bookie.log").exists() else []
        bookies = [each for each in self.bookies[:3] if (each.folder / "bookie.unit").exists()] + spare
        return {
            "# Anywhere": [self.servers],
            "# On the new machine": [self.spare],
            "# On one machine with a bookie": self.bookies[1:2],
            "# On each machine with a bookie": bookies,
            "# On each machine with stores or controllers": [self.servers],
        }[block.text.partition("\n")[0]]

    def run(self, block: Block) -> str:
        """Carry a block out as it is pasted, with the variables of the first one; what it printed."""
        said = ""
        for machine in self.machines_of(block):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", self.here(block.text)],
                env={**self.environ, **self.bookies[1].environ, **machine.environ, "UNITS": str(machine.folder)},
                cwd=machine.folder, capture_output=True, text=True, timeout=BLOCK_SECONDS, check=False,
            )  # fmt: skip
            said += done.stdout + done.stderr
            assert done.returncode == 0, (
                f"the block at line {block.line} failed on {machine.name}:\n{said[-4000:]}\n{machine.log()[-4000:]}"
            )
        return said

    def start_servers(self) -> None:
        """Start stores and controllers, and wait until they serve."""
        for unit in sorted(self.servers.folder.glob("*.unit")):
            systemctl.start(unit)
        end = time.monotonic() + HANG_SECONDS
        while subprocess.run([SARIT, "cluster", "status"], env=self.environ, capture_output=True).returncode:
            assert time.monotonic() < end, self.servers.log()[-3000:]
            time.sleep(1)

    def sarit(self, *arguments: str, data: str = "") -> str:
        """Run a command of a user; what it printed."""
        done = subprocess.run(
            [SARIT, *arguments], env={**self.environ, "SARIT_CONTROLLER": self.controller}, input=data,
            capture_output=True, text=True, timeout=HANG_SECONDS, check=False, cwd=self.directory,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr + self.servers.log()[-3000:]
        return done.stdout

    # -- disasters -----------------------------------------------------------------------------------

    def lose(self, machine: Machine) -> None:
        """End a machine's bookie as a loss of power does, and take its disks."""
        systemctl.stop(machine.folder / "bookie.unit", signal.SIGKILL)
        for name in ("journal", "ledgers"):
            shutil.rmtree(machine.folder / name)
        (machine.folder / "bookie.unit").unlink()

    def lose_prefix(self, name: str) -> None:
        """Delete all objects below a prefix of the bucket."""
        client = boto3.client("s3", **{
            "endpoint_url": self._s3["AWS_ENDPOINT_URL"], "region_name": "us-east-1",
            "aws_access_key_id": self._s3["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": self._s3["AWS_SECRET_ACCESS_KEY"],
        })  # fmt: skip
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{name}/")
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        assert keys
        for key in keys:
            client.delete_object(Bucket=self.bucket, Key=key)

    def empty_zookeeper(self) -> None:
        """Start ZooKeeper without its data, as after the loss of its disks."""
        self.zookeeper.kill()
        shutil.rmtree(self.directory / "zookeeper" / "data")
        self.zookeeper.start()

    def end(self) -> None:
        """End all that was started."""
        for mark in self.directory.glob("*/*.pid"):
            systemctl.stop(mark.with_suffix(".unit"), signal.SIGKILL)
        self.zookeeper.kill()

    # -- how it is made ------------------------------------------------------------------------------

    def _make_commands(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        classes = f"{class_path('bookkeeper')}:{class_path('bookkeeper-http')}"
        for name, text in (
            ("systemctl", f'#!/bin/bash\nexec {sys.executable} {systemctl.__file__} "$@"\n'),
            ("bookkeeper", BOOKKEEPER.format(options=" ".join(OPTIONS), classes=classes)),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "sarit").symlink_to(SARIT)

    def _machine(self, name: str, **environ: str) -> Machine:
        folder = self.directory / name
        folder.mkdir()
        return Machine(name, folder, environ)

    def _bookie(self, name: str, ports: tuple[int, int]) -> Machine:
        machine = self._machine(name, PORT=str(ports[0]))
        file = machine.folder / "bk_server.conf"
        file.write_text(
            configuration(
                {
                    **addresses(self.zookeeper), "bookiePort": ports[0], "httpServerHost": "127.0.0.1",
                    "httpServerPort": ports[1], "journalDirectories": machine.folder / "journal",
                    "ledgerDirectories": machine.folder / "ledgers",
                }
            )
        )  # fmt: skip
        machine.environ |= {"BOOKIE_CONF": str(file), "BOOKIE_DATA": str(machine.folder)}
        machine.unit("bookie", "bookkeeper bookie", PATH=self.environ["PATH"], BOOKIE_CONF=str(file))
        return machine

    def _servers(self) -> tuple[Machine, str]:
        file = self.directory / "cluster.toml"
        file.write_text(f'cluster = "{self.url("first")}"\n')
        machine = self._machine("servers", SARIT_CONFIG=str(file))
        ports = free_ports(3)
        environ = {**self._s3, "SARIT_CONFIG": str(file), "SARIT_HTTP_PORT": "off"}
        for number in (1, 2):
            words = f"--id s{number} --machine m{number} --port {ports[number]} --memory 1G"
            machine.unit(f"sarit-store@{number}", f"{SARIT} store {words}", **environ)
        machine.unit("sarit-controller@1", f"{SARIT} controller --port {ports[0]} --expect 2", **environ)
        return machine, f"127.0.0.1:{ports[0]}"


def _pairs(count: int) -> list[tuple[int, int]]:
    ports = free_ports(2 * count)
    return list(zip(ports[:count], ports[count:], strict=True))
