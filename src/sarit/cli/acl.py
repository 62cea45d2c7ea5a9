"""`sarit acl`: who may do what."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import click

from sarit.cli.options import Commands, controller_option, format_option, show, show_rows
from sarit.client.core.rules import change_rules
from sarit.client.core.rules import list_rules as list_all
from sarit.rpc.generated import controller_pb2
from sarit.security.permissions import Permission, Rule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.client.core.controller import ControllerClient

T = TypeVar("T")
_SCOPE: Final = re.compile(r"prn::/scope:([^/*]+)(?:/|$)")

_RESOURCE_HELP = """
    RESOURCE is prn::/ for the list of scopes, prn::/scope:S, prn::/scope:S/stream:T, prn::/scope:S/reader-group:G,
    prn::/scope:S/key-value-table:K; for the schema registry prn::/namespace:N or prn::/namespace:N/group:G, where N of
    the default namespace is empty and G is encoded as in URLs; for links prn::/mirror:S; or a prefix of these with * at
    the end.  SUBJECT is user:NAME, role:NAME, or * for everybody who has logged in.
"""


@click.group(cls=Commands)
def acl() -> None:
    """Give and take permissions.  Without a rule nothing is allowed; the role admin may do everything."""


@acl.command(epilog=_RESOURCE_HELP)
@click.argument("subject")
@click.argument("resource")
@click.argument("permission", type=click.Choice(["READ", "READ_UPDATE"], case_sensitive=False))
@controller_option
@format_option
def grant(subject: str, resource: str, permission: str, controller: str, output: str) -> None:
    """Give SUBJECT a PERMISSION on RESOURCE, instead of what it had there.

    The scope need not be there yet: a rule may allow its creation.  The command says so then."""
    rule = Rule.parse(subject, resource, permission)
    changed = _call(controller, lambda controller: change_rules(controller, [rule]))
    text = f"{subject} has {rule.permission.name} on {resource}" + ("" if changed else " already")
    scope = scope_of(resource)
    if scope is not None and not _call(controller, lambda controller: _is_there(controller, scope)):
        click.echo(f"there is no scope {scope}: the rule is for one that will be created", err=True)
    show(output, {**_row(rule), "changed": bool(changed)}, text)


@acl.command(epilog=_RESOURCE_HELP)
@click.argument("subject")
@click.argument("resource")
@controller_option
@format_option
def revoke(subject: str, resource: str, controller: str, output: str) -> None:
    """Take the rule of SUBJECT for RESOURCE away.

    Who reads or writes now goes on until the token expires (--token-ttl of the server)."""
    rule = replace(Rule.parse(subject, resource, "READ"), permission=Permission.NONE)
    changed = _call(controller, lambda controller: change_rules(controller, [rule]))
    text = f"the rule of {subject} for {resource} is gone" if changed else f"{subject} had no rule for {resource}"
    show(output, {"subject": subject, "resource": resource, "changed": bool(changed)}, text)


@acl.command("list")
@click.option("--subject", help="Only the rules of this one.")
@controller_option
@format_option
def list_rules(subject: str | None, controller: str, output: str) -> None:
    """List the rules."""
    rules = _call(controller, list_all)
    rows = [_row(rule) for rule in rules if subject in (None, rule.subject)]
    show_rows(output, rows, ["subject", "resource", "permission"])


def scope_of(resource: str) -> str | None:
    """Return the one scope that a resource is about; None: it is about several, or no name is whole."""
    found = _SCOPE.match(resource)
    return found[1] if found is not None else None


async def _is_there(controller: ControllerClient, scope: str) -> bool:
    reply = await controller.call(controller.stub.checkScopeExists, controller_pb2.ScopeInfo(scope=scope))
    return bool(reply.exists)


def _row(rule: Rule) -> dict[str, object]:
    return {"subject": rule.subject, "resource": rule.pattern, "permission": rule.permission.name}


def _call(address: str, call: Callable[[ControllerClient], Awaitable[T]]) -> T:
    from sarit.client import aio

    async def main() -> T:
        async with await aio.connect(address) as client:
            return await client.session.with_retry(lambda: call(client.session.controller))

    return asyncio.run(main())
