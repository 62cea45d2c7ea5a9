"""`sarit quota`: what scopes and users may use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sarit.cli.option_types import Memory
from sarit.cli.options import Commands, controller_option, format_option, show, show_fields, show_rows
from sarit.client.core.quotas import change_quotas, list_quotas, quota_use
from sarit.core.errors import NotFound
from sarit.core.nearest_names import nearest
from sarit.security.quotas import SCOPE, USER, Quota

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.client.core.controller import ControllerClient
    from sarit.security.quotas import Quotas

T = TypeVar("T")


def _subject_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--user", help="The user; * for each that has no quota of its own.")(command)
    return click.option("--scope", help="The scope; * for each that has no quota of its own.")(command)


@click.group(cls=Commands)
def quota() -> None:
    """Limit what scopes and users may use.

    Bytes over a quota make clients wait, without an error; a count over a quota is refused."""


@quota.command("set")
@_subject_options
@click.option("--bytes-in", type=Memory(), help="Appended bytes a second, as 10M.")
@click.option("--bytes-out", type=Memory(), help="Bytes a second in replies to reads.")
@click.option("--streams", type=click.IntRange(0), help="Streams of a scope.")
@click.option("--segments", type=click.IntRange(0), help="Segments of a scope that accept appends.")
@click.option("--storage", type=Memory(), help="Bytes in the streams of a scope, as 100G.")
@click.option("--connections", type=click.IntRange(0), help="Connections of a user to each store.")
@controller_option
@format_option
def set_quota(
    scope: str | None, user: str | None, bytes_in: int | None, bytes_out: int | None, streams: int | None,
    segments: int | None, storage: int | None, connections: int | None, controller: str, output: str,
) -> None:  # fmt: skip
    """Set limits; those that are not given stay as they are.  0 removes one."""
    subject = _subject(scope, user)
    asked = {
        "bytes_in": bytes_in, "bytes_out": bytes_out, "streams": streams, "segments": segments,
        "storage_bytes": storage, "connections": connections,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        raise click.UsageError("give a limit, such as --bytes-in 10M")

    async def change(client: ControllerClient) -> Quota | None:
        before = (await list_quotas(client)).by_subject.get(subject, Quota())
        limits = dict(before.limits()) | given
        found = Quota(**limits)
        found.check(subject)
        await change_quotas(client, {subject: found if found.limits() else None})
        return found

    found = _call(controller, change)
    assert found is not None
    limits = ", ".join(f"{name} {value}" for name, value in found.limits()) or "no limit"
    show(output, {"subject": subject, **dict(found.limits())}, f"{subject}: {limits}")


@quota.command("list")
@controller_option
@format_option
def list_all(controller: str, output: str) -> None:
    """List the quotas."""
    found = _call(controller, list_quotas)
    rows = [_row(found, subject) for subject in sorted(found.by_subject)]
    columns = ["subject", "bytes_in", "bytes_out", "streams", "segments", "connections", "storage_bytes", "full"]
    show_rows(output, rows, columns)


@quota.command("show")
@_subject_options
@controller_option
@format_option
def show_quota(scope: str | None, user: str | None, controller: str, output: str) -> None:
    """Print the quota of a scope or a user, and what a scope uses now."""
    subject = _subject(scope, user)

    async def ask(client: ControllerClient) -> dict[str, object]:
        found = await list_quotas(client)
        limits = found.of_user(user) if user is not None else found.of_scope(scope or "")
        row: dict[str, object] = {"subject": subject, **dict(limits.limits())}
        if scope not in (None, "*"):
            use = await quota_use(client, scope or "")
            row |= {"streams used": use.streams, "segments used": use.segments, "storage used": use.storage_bytes}
            row["full"] = scope in found.full
        return row

    show_fields(output, _call(controller, ask))


@quota.command("remove")
@_subject_options
@controller_option
@format_option
def remove(scope: str | None, user: str | None, controller: str, output: str) -> None:
    """Remove all limits of a scope or a user."""
    subject = _subject(scope, user)

    async def take(client: ControllerClient) -> int:
        quotas = (await list_quotas(client)).by_subject
        if subject not in quotas:
            raise NotFound(f"{subject} has no quota" + (f"; {nearest(subject, quotas)}" if quotas else ""))
        return await change_quotas(client, {subject: None})

    changed = _call(controller, take)
    show(output, {"subject": subject, "changed": bool(changed)}, f"the quota of {subject} is gone")


def _subject(scope: str | None, user: str | None) -> str:
    if (scope is None) == (user is None):
        raise click.UsageError("give --scope or --user")
    return f"{SCOPE}{scope}" if user is None else f"{USER}{user}"


def _row(quotas: Quotas, subject: str) -> dict[str, object]:
    quota = quotas.by_subject[subject]
    full = subject.removeprefix(SCOPE) in quotas.full if subject.startswith(SCOPE) else False
    return {"subject": subject, **{name: getattr(quota, name) or "" for name in Quota.__slots__}, "full": full}


def _call(address: str, call: Callable[[ControllerClient], Awaitable[T]]) -> T:
    from sarit.client import aio

    async def main() -> T:
        async with await aio.connect(address) as client:
            return await client.session.with_retry(lambda: call(client.session.controller))

    return asyncio.run(main())
