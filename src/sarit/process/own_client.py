"""A client of the controller in this process, with the rights of the process itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.client.aio import Client
    from sarit.client.core.login import Credentials
    from sarit.env.ports import Env
    from sarit.process.security import Security
    from sarit.rpc.handlers import Handler


def client_factory(
    controller: str, calls: Mapping[str, Handler], security: Security, peer: Callable[[], str], retry_seconds: float
) -> Callable[[Credentials | None], Client]:
    """Return what makes clients of the controller whose handlers are `calls`, each with credentials of its own.

    `controller`: HOST:PORT, for texts.  `peer`: returns who calls now, for the audit log.  `retry_seconds`: for how
    long each call is repeated."""
    from sarit.client.aio import connect_in_process
    from sarit.client.core.addresses import default_traces
    from sarit.env.real import real_env
    from sarit.rpc.in_process import LocalChannel

    tls = security.own_tls()
    context = None if tls is None else tls.context()
    use = None if context is None else lambda: context
    env = real_env(client_tls=use, traces=default_traces(), service="sarit-client")
    channel = LocalChannel(calls, peer)
    return lambda credentials: connect_in_process(controller, channel, env, retry_seconds, credentials)


def own_credentials(security: Security, env: Env) -> Credentials | None:
    """Return the credentials of the process itself; None: this installation has no users."""
    from sarit.client.core.login import BearerToken

    logins = security.logins(env)
    return None if logins is None else BearerToken(logins.own_token())
