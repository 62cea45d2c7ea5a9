"""The compose file of a cluster without a container engine: the commands of its services, run as processes.

ZooKeeper, bookies and the S3 server are those of the other tests.  Every service of Sarit is started by its own entry
point, command and environment; only names of the network, ports and the folder of secrets are others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.peers.ports import free_ports
from tests.components.bookkeeper import BookKeeperCluster
from tests.components.zookeeper import ZooKeeperServer
from tests.contract.s3 import s3_server
from tests.deploy.test_compose import FOLDER, ours
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT

pytestmark = pytest.mark.long

DOCKER = FOLDER.parent / "docker"
SERVICES = ours(FOLDER / "cluster.yaml")
STORES = [name for name, service in SERVICES.items() if service["command"][0] == "store"]
CONTROLLERS = [name for name, service in SERVICES.items() if service["command"][0] == "controller"]


class Place:
    """What stands for the network of the containers, their file system and their image."""

    def __init__(self, directory: Path, zookeeper: str, s3) -> None:
        self.directory = directory
        names = [*STORES, *CONTROLLERS]
        ports = free_ports(2 * len(names))
        self.ports = dict(zip(names, ports, strict=False))
        self.http = dict(zip(names, ports[len(names) :], strict=True))
        self.renamed = {
            "zookeeper:2181": zookeeper, "http://s3:7070": s3.endpoint, "s3://sarit/": f"s3://{s3.bucket}/",
            "/run/secrets": str(directory / "secrets"), "--host=0.0.0.0": "--host=127.0.0.1", "$$": "$",
            **{f"--advertise={name}": "--advertise=127.0.0.1" for name in names},
            **{f"{name}:9090": f"127.0.0.1:{self.ports[name]}" for name in CONTROLLERS},
        }  # fmt: skip
        (directory / "secrets").mkdir()
        (directory / "secrets" / "s3-key-id").write_text(s3.environ["AWS_ACCESS_KEY_ID"] + "\n")
        (directory / "secrets" / "s3-key").write_text(s3.environ["AWS_SECRET_ACCESS_KEY"] + "\n")
        (directory / "bin").mkdir()
        for name, target in (("sarit", Path(SARIT)), ("sarit-entrypoint", DOCKER / "entrypoint.sh")):
            (directory / "bin" / name).symlink_to(target)

    def here(self, text: str) -> str:
        """A word of the file, with the names of this place."""
        for name, ours_is in self.renamed.items():
            text = text.replace(name, ours_is)
        return text

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a service; `arguments`: in place of those of the file."""
        service = SERVICES[name]
        entry = [self.here(word) for word in service.get("entrypoint", ["sarit-entrypoint"])]
        command = list(arguments) or [self.here(word) for word in service["command"]]
        if name in self.ports:
            command += [f"--port={self.ports[name]}", f"--http-port={self.http[name]}"]
        environ = {key: self.here(str(value)) for key, value in service["environment"].items()}
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        with (self.directory / f"{name}.log").open("a") as log:
            return subprocess.Popen(
                [*entry, *command], env={"PATH": path, "HOME": str(self.directory), **environ}, cwd=self.directory,
                stdout=subprocess.PIPE if arguments else log, stderr=log, stdin=subprocess.PIPE, text=True,
            )  # fmt: skip

    def is_healthy(self, name: str) -> bool:
        """What the health check of a service says."""
        kind, program, what = SERVICES[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "sarit-probe")
        environ = {"SARIT_HTTP_PORT": str(self.http[name])}
        return subprocess.run([sys.executable, "-IS", DOCKER / "probe.py", what], env=environ).returncode == 0

    def client(self, *arguments: str, data: str = "") -> str:
        """Run a command as `docker compose run --rm client …` does; what it printed."""
        process = self.start("client", *arguments)
        out, _ = process.communicate(data, HANG_SECONDS)
        assert process.returncode == 0, (self.directory / "client.log").read_text()
        return out

    def logs(self) -> str:
        """The ends of what all services have logged."""
        return "\n".join(f"{path.name}: {path.read_text()[-1000:]}" for path in self.directory.glob("*.log"))


def test_services_of_the_cluster_serve_by_their_own_commands(tmp_path):
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_server(tmp_path / "s3"))
        zookeeper = ZooKeeperServer(tmp_path / "zookeeper").start()
        stack.callback(zookeeper.kill)
        bookies = BookKeeperCluster(tmp_path, zookeeper, 3)
        stack.callback(bookies.kill)
        bookies.start()
        place = Place(tmp_path, zookeeper.hosts, s3)
        for _ in range(2):  # the second time the cluster is there, and it ends well, too
            assert place.start("init").wait(HANG_SECONDS) == 0, place.logs()
        started = {name: place.start(name) for name in (*STORES, *CONTROLLERS)}
        for process in started.values():
            stack.callback(process.wait)
            stack.callback(process.kill)
        end = time.monotonic() + HANG_SECONDS
        while not all(place.is_healthy(name) for name in started):
            assert time.monotonic() < end, place.logs()
            assert all(process.poll() is None for process in started.values()), place.logs()
            time.sleep(0.2)
        place.client("scope", "create", "demo")
        place.client("stream", "create", "demo/events")
        place.client("write", "demo/events", data="one\ntwo\n")
        assert place.client("read", "demo/events").splitlines() == ["one", "two"]
        # A stop as Compose does it, within the grace of the file.
        started[STORES[0]].terminate()
        assert started[STORES[0]].wait(75) == 0, place.logs()
        assert place.client("read", "demo/events").splitlines() == ["one", "two"]
