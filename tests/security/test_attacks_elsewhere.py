"""The attackers of `attackers.py` on a node of several processes, and on a cluster with a real ZooKeeper."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from sarit.cli.dev_ca import make_certificates
from tests.cluster.processes import RunningCluster
from tests.nodes import RunningNode
from tests.secured import client_environment
from tests.security.attackers import ATTACKS, Target, make_things
from tests.security.running import PASSWORD, USERS, write_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long  # the cluster needs Java


@contextmanager
def _processes(directory: Path, options: dict[str, str]) -> Iterator[str]:
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    node = RunningNode(directory / "data", "--processes", "2", *flags).start()
    try:
        yield node.controller.replace("127.0.0.1", "localhost")
    finally:
        node.stop()


@contextmanager
def _cluster(directory: Path, options: dict[str, str]) -> Iterator[str]:
    variables = {f"SARIT_{name.replace('-', '_').upper()}": value for name, value in options.items()}
    variables |= client_environment(options["tls-ca"], "root", PASSWORD)
    # One controller: a permission that is given holds from then on, and not within two seconds.
    with RunningCluster(directory / "cluster", stores=2, controllers=1, containers=4, environ=variables) as cluster:
        yield cluster.controller.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module", params=[_processes, _cluster], ids=["processes", "cluster"])
def target(request, tmp_path_factory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("attacked")
    made = {name: str(path) for name, path in make_certificates(directory / "certificates", (), 1).items()}
    files = write_files(directory, {**USERS, "dave": set()})
    options = {
        "tls-cert": made["server"], "tls-key": made["server key"], "tls-ca": made["ca"], "advertise": "localhost",
        "users": files.users, "token-keys": files.token_keys,
    }  # fmt: skip
    with request.param(directory, options) as controller:
        found = Target(controller, ssl.create_default_context(cafile=made["ca"]), made["ca"])
        rights = [("user:alice", "READ"), ("user:bob", "READ_UPDATE")]
        asyncio.run(found.grant(*((who, f"prn::/scope:app{end}", what) for who, what in rights for end in ("", "/*"))))
        yield found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.removeprefix("attack_"))
def test_attacker_with_a_log_in_gets_what_the_rules_say(target, attack):
    async def main() -> None:
        await make_things(target)
        await attack(target)

    asyncio.run(main())
