"""A node with users, tokens and TLS in the process of the test."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from sarit.client import aio
from sarit.client.core.login import Tls, UserPassword
from sarit.client.core.rules import change_rules
from sarit.env.real import real_env
from sarit.process.addresses import Advertised
from sarit.process.security import Security, SecurityConfig
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.security.permissions import Rule
from sarit.security.users import User, format_users, hash_password

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sarit.client.aio import Client
    from sarit.process.standalone import Node

PASSWORD = "correct horse"
USERS = {"root": {"admin"}, "alice": set(), "bob": {"analyst"}}
MEMORY_BYTES = 8 << 30


@cache
def _hashed() -> str:
    return hash_password(PASSWORD)


def write_files(directory: Path, users: dict[str, set[str]] | None = None) -> SecurityConfig:
    """The user file and the token keys; the settings that name them."""
    directory.mkdir(exist_ok=True)
    listed = [User(name, _hashed(), frozenset(roles)) for name, roles in (users or USERS).items()]
    (directory / "users").write_text(format_users(listed))
    (directory / "users").chmod(0o600)
    keys = directory / "keys"
    if not keys.exists():
        keys.write_bytes(os.urandom(32).hex().encode() + b"\n")
        keys.chmod(0o600)
    return SecurityConfig(users=str(directory / "users"), token_keys=str(keys), audit=str(directory / "audit.jsonl"))


class Secured:
    """A node that runs, and its clients."""

    def __init__(self, node: Node, ca: str | None = None) -> None:
        self.node = node
        self.address = f"{'localhost' if ca is not None else '127.0.0.1'}:{node.controller_port}"
        self._tls = Tls(ca) if ca is not None else None

    @asynccontextmanager
    async def client(self, user: str, password: str = PASSWORD) -> AsyncIterator[Client]:
        """A client of a user; it does not retry."""
        async with await aio.connect(
            self.address, credentials=UserPassword(user, password), tls=self._tls, retry_timeout=5.0
        ) as client:
            yield client

    async def grant(self, *rules: tuple[str, str, str]) -> None:
        """Give permissions."""
        async with self.client("root") as root:
            await change_rules(root.session.controller, [Rule.parse(*rule) for rule in rules])


@asynccontextmanager
async def secured(
    directory: Path, config: SecurityConfig, ca: str | None = None, *, jobs: bool = False
) -> AsyncIterator[Secured]:
    """A node on free ports."""
    security = Security(config)
    settings = NodeConfig(
        str(directory / "data"),
        controller_port=0,
        store_port=0,
        containers=1,
        jobs=jobs,
        security=config,
        # Certificates are for names: official clients take no others.
        advertised=Advertised("localhost") if ca is not None else None,
    )
    env = real_env(security.server_tls, security.client_tls())
    node = await open_node(settings.validated().on_machine(MEMORY_BYTES), env, security=security)
    await node.start()
    try:
        yield Secured(node, ca)
    finally:
        await node.stop()
