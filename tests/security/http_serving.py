"""A node with users and an HTTP port in the process of the test, with TLS or without."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx

from sarit.cli.dev_ca import make_certificates
from sarit.process.admin import Admin
from sarit.process.observation.console_view import StandaloneView
from sarit.process.observation.health import Health
from sarit.security.users import User, format_users, hash_password, parse_users
from tests.security.running import PASSWORD, Secured, secured, write_files


class Http:
    """The HTTP port of a node."""

    def __init__(self, base: str, context: ssl.SSLContext, admin, secured: Secured) -> None:
        self.base, self.context, self.admin, self.secured = base, context, admin, secured
        self.node = secured.node

    def as_user(self, auth=None, **options) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.base, verify=self.context, auth=auth, **options)


@asynccontextmanager
async def serving(directory, *, tls: bool = True, jobs: bool = False, **options):
    """A node with users, TLS and an HTTP port; alice reads scope app, bob changes it, scrape has the role metrics."""
    made = make_certificates(directory / "certificates", (), 1)
    ca, certificate, key = (str(made[name]) for name in ("ca", "server", "server key"))
    config = write_files(directory)
    users = parse_users((directory / "users").read_text(), "users")
    users |= {"scrape": User("scrape", hash_password(PASSWORD), frozenset({"metrics"}))}
    users |= {"dave": User("dave", hash_password(PASSWORD), frozenset())}
    (directory / "users").write_text(format_users(users.values()))
    config = replace(config, **options)
    if tls:
        config = replace(config, certificate=certificate, key=key, ca=ca)
    async with secured(directory, config, ca=ca if tls else None, jobs=jobs) as made:
        node, env = made.node, made.node.env
        admin = Admin(Health("the node", env.clock), node.config, 0, node.security, env)
        await admin.open()
        try:
            address, calls = f"127.0.0.1:{node.controller_port}", node.controller_role.listener.handlers
            await admin.serve(address, calls, StandaloneView(node, admin.health))
            rules = [("user:alice", "READ"), ("user:bob", "READ_UPDATE")]
            await made.grant(*((who, f"prn::/scope:app{end}", what) for who, what in rules for end in ("", "/*")))
            yield Http(f"http{'s' * tls}://127.0.0.1:{admin.port}", ssl.create_default_context(cafile=ca), admin, made)
        finally:
            await admin.close()
