"""Attackers on a node of several processes, and on a cluster with a real ZooKeeper.

With a log-in: those of `attackers.py`.  Without one: the floods of `benchmarks/beside_attackers.py`, which measures
their cost; here others must be served, and no probe be missed.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from benchmarks.beside_attackers import KINDS, attacking
from benchmarks.peers.ports import free_ports
from sarit.cli.dev_ca import make_certificates
from sarit.core.names import StreamName
from tests.cluster.processes import RunningCluster
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.secured import client_environment
from tests.security.attackers import ATTACKS, FIRST, Target, make_things
from tests.security.running import PASSWORD, USERS, write_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sarit.client import aio

pytestmark = pytest.mark.long  # the cluster needs Java


FLOOD_SECONDS = 4.0
APPEND_SECONDS = 20.0
PROBE_SECONDS = 5.0


@contextmanager
def _processes(directory: Path, options: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    ports = free_ports(3)
    node = RunningNode(directory / "data", "--processes", "2", "--http-port", str(ports[0]), *flags).start()
    try:
        yield node.controller.replace("127.0.0.1", "localhost"), [f"127.0.0.1:{port}" for port in ports]
    finally:
        node.stop()


@contextmanager
def _cluster(directory: Path, options: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    variables = {f"SARIT_{name.replace('-', '_').upper()}": value for name, value in options.items()}
    login = client_environment(options.get("tls-ca", ""), "root", PASSWORD)
    variables |= {name: value for name, value in login.items() if value}
    # One controller: a permission that is given holds from then on, and not within two seconds.
    with RunningCluster(
        directory / "cluster", stores=2, controllers=1, containers=4, http=True, environ=variables
    ) as cluster:
        http = [process.http for process in (*cluster.controllers, *cluster.stores.values())]
        yield cluster.controller.replace("127.0.0.1", "localhost"), http


@dataclass(frozen=True)
class Flooded:
    """Where floods go; `http`: the ports of its processes that answer probes."""

    target: Target
    http: list[str]


@pytest.fixture(scope="module", params=[_processes, _cluster], ids=["processes", "cluster"])
def encrypted(request, tmp_path_factory) -> Iterator[Flooded]:
    directory = tmp_path_factory.mktemp("attacked")
    made = {name: str(path) for name, path in make_certificates(directory / "certificates", (), 1).items()}
    files = write_files(directory, {**USERS, "dave": set()})
    options = {
        "tls-cert": made["server"], "tls-key": made["server key"], "tls-ca": made["ca"], "advertise": "localhost",
        "users": files.users, "token-keys": files.token_keys,
    }  # fmt: skip
    with request.param(directory, options) as (controller, http):
        found = Target(controller, ssl.create_default_context(cafile=made["ca"]), made["ca"])
        rights = [("user:alice", "READ"), ("user:bob", "READ_UPDATE")]
        asyncio.run(found.grant(*((who, f"prn::/scope:app{end}", what) for who, what in rights for end in ("", "/*"))))
        yield Flooded(found, http)


@pytest.fixture(scope="module")
def target(encrypted) -> Target:
    return encrypted.target


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.removeprefix("attack_"))
def test_attacker_with_a_log_in_gets_what_the_rules_say(target, attack):
    async def main() -> None:
        await make_things(target)
        await attack(target)

    asyncio.run(main())


@pytest.fixture(scope="module", params=[_processes, _cluster], ids=["processes", "cluster"])
def flooded(request, tmp_path_factory) -> Iterator[Flooded]:
    directory = tmp_path_factory.mktemp("flooded")
    files = write_files(directory)
    with request.param(directory, {"users": files.users, "token-keys": files.token_keys}) as (controller, http):
        yield Flooded(Target(controller.replace("localhost", "127.0.0.1")), http)


async def _append(client: aio.Client, until: float) -> int:
    """Append an event after the other; how many.  Each is acknowledged in time, or this raises."""
    async with client.writer("quiet/s") as writer:
        for count in itertools.count():
            if time.monotonic() > until:
                return count
            async with asyncio.timeout(APPEND_SECONDS):
                writer.write(b"x" * 100)
                await writer.flush()
            await asyncio.sleep(0.02)
    raise AssertionError


async def _probe(flooded: Flooded, until: float) -> int:
    """Probe one process after the other; how many times.  Each answers in time, or this raises."""
    for count, address in enumerate(itertools.cycle(flooded.http)):
        if time.monotonic() > until:
            return count
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=flooded.target.context)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in await reader.readline(), address
            writer.close()
        await asyncio.sleep(0.1)
    raise AssertionError


def _flood(flooded: Flooded, kind: str) -> None:
    async def main() -> None:
        async with flooded.target.user("root") as root:
            client = root.client
            await client.create_scope("quiet")
            await client.create_stream("quiet/s")
            _, store = await client.session.controller.endpoint(StreamName("quiet", "s"), FIRST)
            at = {"store": store, "controller": int(flooded.target.controller.rpartition(":")[2]),
                  "HTTP": int(flooded.http[-1].rpartition(":")[2]), "store with TLS": store}  # fmt: skip
            async with attacking(kind, at[KINDS[kind][0]], HANG_SECONDS):
                until = time.monotonic() + FLOOD_SECONDS
                appends, probes = await asyncio.gather(_append(client, until), _probe(flooded, until))
        assert appends
        assert probes
        async with flooded.target.user("root") as another:  # who comes now is let in
            assert "quiet" in [scope async for scope in another.client.list_scopes()]

    asyncio.run(main())


@pytest.mark.parametrize("kind", [kind for kind, (port, *_) in KINDS.items() if "TLS" not in port])
def test_others_are_served_beside_an_attacker_without_a_log_in(flooded, kind):
    _flood(flooded, kind)


def test_others_are_served_beside_handshakes_that_do_not_end(encrypted):
    _flood(encrypted, "handshakes")
