"""`sarit link`: streams copied to and from other installations."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

import sarit
from sarit.cli.limits import PROMOTION_POLL_SECONDS
from sarit.cli.link_options import changed_settings, new_settings, settings_options
from sarit.cli.names import LINK
from sarit.cli.options import (
    Commands,
    confirm,
    controller_option,
    count_of,
    format_option,
    show,
    show_fields,
    show_rows,
    yes_option,
)
from sarit.core.links import LinkDirection, LinkRole, LinkState
from sarit.core.policies import RetentionType
from sarit.env.real import real_env

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.blocking.links import Links
    from sarit.core.links import LinkInfo, LinkPromotion, LinkSettings

_COLUMNS: Final = ["name", "direction", "peer", "state", "up", "streams", "lag", "lost", "failing"]
_MS_PER_SECOND: Final = 1000


@click.group(cls=Commands)
def link() -> None:
    """Copy streams to and from other installations, at equal offsets.

    A link runs in one of them: it pushes its own streams to the peer, or pulls the peer's.  Mirrors are read-only until
    they are promoted."""


@link.command()
@click.argument("name")
@click.option("--push", "pushed", metavar="HOST:PORT", help="Copy streams of this installation to that one.")
@click.option("--pull", "pulled", metavar="HOST:PORT", help="Copy streams of that installation to this one.")
@click.option(
    "--start", default="head", show_default=True, metavar="head|tail|TIME",
    help="Copy all there is, only what comes, or what came since a time, as '-2 hours'.",
)  # fmt: skip
@settings_options
@click.option("--paused", is_flag=True, help="Create it without copying yet: `sarit link resume` begins.")
@controller_option
@format_option
def create(
    name: str, pushed: str | None, pulled: str | None, start: str, paused: bool, controller: str, output: str,
    **chosen: Any,
) -> None:  # fmt: skip
    """Create the link NAME, here or at --controller: it begins to copy at once.

    As peer give the address of a controller; tls:// before it asks for TLS."""
    if (pushed is None) == (pulled is None):
        raise click.UsageError("give --push HOST:PORT or --pull HOST:PORT: which way to copy, and who the peer is")
    direction = LinkDirection.PULL if pushed is None else LinkDirection.PUSH
    settings = new_settings(direction.value, pushed or pulled or "", start, real_env().clock.wall_ms(), chosen)
    with sarit.connect(controller) as client:
        made = client.links.create(name, settings, paused=paused)
    away = "" if made.peer_installation else "; the peer does not answer yet, and it goes on trying"
    show(output, _as_json(made), f"link {name} is {made.state.value}{away}")


@link.command("list")
@controller_option
@format_option
def list_all(controller: str, output: str) -> None:
    """List all links: those that run here, and those that write here."""
    with sarit.connect(controller) as client:
        found = client.links.list()
    if output == "json":
        show_rows(output, [_as_json(one) for one in found], [])
        return
    show_rows(output, [_row(one) for one in found], _COLUMNS)


@link.command("show")
@click.argument("name", type=LINK)
@controller_option
@format_option
def show_link(name: str, controller: str, output: str) -> None:
    """Show the link NAME: its settings, how far it is, and what fails."""
    with sarit.connect(controller) as client:
        found = client.links.get(name)
    _show(output, found)


@link.command()
@click.argument("name", type=LINK)
@click.option("--peer", metavar="HOST:PORT", help="Another address of the peer.")
@settings_options
@controller_option
@format_option
def change(name: str, controller: str, output: str, **chosen: Any) -> None:
    """Change the settings of the link NAME that are given and no others; show all of them.

    Direction and start stay.  What is not copied any more stays where it is."""
    with sarit.connect(controller) as client:
        before = client.links.get(name)
        settings = changed_settings(before.settings, chosen)
        if settings == before.settings:
            raise click.UsageError("name at least one setting to change (see sarit link change --help)")
        found = client.links.change(name, settings)
    _show(output, found)


def _add_command(verb: str, help_text: str, call: Callable[[Links, str], LinkInfo]) -> None:
    """Add a command that gives a link another state."""

    @link.command(verb, help=help_text)
    @click.argument("name", type=LINK)
    @controller_option
    @format_option
    def command(name: str, controller: str, output: str) -> None:
        with sarit.connect(controller) as client:
            found = call(client.links, name)
        show(output, _as_json(found), f"link {name} is {found.state.value}")


_add_command(
    "pause",
    "Let the link NAME copy nothing until it is resumed.  Its source goes on holding for it.",
    lambda links, name: links.pause(name),
)
_add_command("resume", "Let the link NAME copy again, from where it was.", lambda links, name: links.resume(name))


@link.command()
@click.argument("name", type=LINK)
@yes_option
@controller_option
@format_option
def delete(name: str, yes: bool, controller: str, output: str) -> None:
    """Delete the link NAME, and what is held for it.  Its mirrors stay read-only: promote them before."""
    with sarit.connect(controller) as client:
        found = client.links.get(name)
        if found.state is not LinkState.PROMOTED:
            confirm(f"Delete link {name}?  Its mirrors are not promoted, and stay read-only.", yes=yes)
        problem = client.links.delete(name)
    show(output, {"link": name, "deleted": True, "problem": problem}, f"link {name} is deleted")
    if problem and output != "json":
        click.echo(problem, err=True)


@link.command()
@click.argument("name", type=LINK)
@click.option(
    "--planned/--unplanned", default=None,
    help="Where the link runs: make the source read-only, copy the rest, lose nothing.  Or where the mirrors are: "
    "promote what is there, at once; the source is not made read-only.",
)  # fmt: skip
@click.option("--wait", type=click.FloatRange(0), metavar="SECONDS", help="Wait until a planned promotion is done.")
@yes_option
@controller_option
@format_option
def promote(name: str, planned: bool | None, wait: float | None, yes: bool, controller: str, output: str) -> None:
    """Make streams of the mirrors of the link NAME, which writers may write from then on."""
    if planned is None:
        raise click.UsageError(
            "give --planned (where the link runs: nothing is lost) or --unplanned (where the mirrors are: the source "
            "is not made read-only)"
        )
    if not planned:
        confirm(
            f"Promote the mirrors of link {name} as they are?  Their source is not made read-only: what is written to "
            "it from now on is not in them.", yes=yes
        )  # fmt: skip
    with sarit.connect(controller) as client:
        if planned:
            done = client.links.promote(name, planned=True)
            found = done.link if wait is None else _wait(client.links, name, wait)
            _show_drain(output, found, waited=wait is not None)
            return
        total = 0
        while True:
            done = client.links.promote(name, planned=False)
            total += done.promoted
            if not done.left or not done.promoted:
                break
            click.echo(f"{count_of(total, 'mirror')} promoted, {done.left:,} left", err=True)
    _show_promoted(output, done, total)


def _wait(links: Links, name: str, seconds: float) -> LinkInfo:
    """Return a link as soon as it is promoted, or as it is when the time is over."""
    clock = real_env().clock
    end = clock.monotonic() + seconds
    while True:
        found = links.get(name)
        if found.state is not LinkState.DRAINING or clock.monotonic() >= end:
            return found
        Event().wait(PROMOTION_POLL_SECONDS)


def _show_drain(output: str, found: LinkInfo, *, waited: bool) -> None:
    if found.state is LinkState.PROMOTED:
        show(output, _as_json(found), f"the mirrors of link {found.name} are promoted, and its source is read-only")
        return
    text = f"link {found.name} is being promoted: {_bytes(found.status.lag_bytes)} are not copied yet"
    problem = found.problem or found.status.note
    text += f"; {problem}" if problem else ""
    show(output, _as_json(found), text + f"; `sarit link show {found.name}` tells when it is done")
    if waited:
        raise click.exceptions.Exit(1)


def _show_promoted(output: str, done: LinkPromotion, total: int) -> None:
    problems = [asdict(problem) for problem in done.problems]
    value = {"link": done.link.name, "promoted": total, "left": done.left, "problems": problems}
    lines = [f"{count_of(total, 'mirror')} of link {done.link.name} promoted"]
    if done.left:
        lines[0] += f", {done.left:,} not: repeat the command"
    lines += [f"  {problem.stream}: {problem.text}" for problem in done.problems]
    show(output, value, "\n".join(lines))
    if done.left:
        raise click.exceptions.Exit(1)


def _row(found: LinkInfo) -> dict[str, object]:
    status, runs = found.status, found.role is LinkRole.ACTIVE
    return {
        "name": found.name,
        "direction": found.settings.direction.value if runs else "from",
        "peer": found.settings.peer if runs else found.peer_installation,
        "state": found.state.value,
        "up": ("yes" if status.up else "no") if runs else "-",
        "streams": f"{status.streams:,}" if runs else "-",
        "lag": f"{_bytes(status.lag_bytes)}, {status.lag_seconds:.0f} s" if runs else "-",
        "lost": _bytes(status.lost_bytes) if status.lost_bytes else "-",
        "failing": f"{status.failing:,}" if status.failing else "-",
    }


def _show(output: str, found: LinkInfo) -> None:
    if output == "json":
        show(output, _as_json(found), "")
        return
    status, settings = found.status, found.settings
    fields: dict[str, object] = {"link": found.name, "state": found.state.value}
    if found.role is LinkRole.PASSIVE:
        fields |= {"runs in": f"installation {found.peer_installation}, which writes here"}
        show_fields(output, fields)
        return
    fields |= _setting_fields(settings)
    fields |= {
        "peer's id": found.peer_installation or "not known yet",
        "up": "yes" if status.up else "no",
        "worker": found.holder or "-",
        "streams": f"{status.streams:,}",
        "lag": f"{_bytes(status.lag_bytes)}, {status.lag_seconds:.1f} s",
        "copied": _bytes(status.copied_bytes),
        "lost": _bytes(status.lost_bytes),
        "clock skew": f"{status.clock_skew_ms:,} ms",
        "compressed": "yes" if status.compressed else "no",
        "failing": count_of(status.failing, "stream"),
    }
    if status.note:
        fields["note"] = status.note
    if found.problem:
        fields["problem"] = found.problem
    show_fields(output, fields)
    for problem in status.problems:
        click.echo(f"  {problem.stream or 'the link'}: {problem.text}")


def _setting_fields(settings: LinkSettings) -> dict[str, object]:
    fields: dict[str, object] = {
        settings.direction.value: f"{'to' if settings.direction is LinkDirection.PUSH else 'from'} {settings.peer}",
        "user": f"{settings.user}, password in {settings.password}" if settings.user else "-",
        "include": list(settings.include),
        "exclude": list(settings.exclude),
    }
    if settings.priorities:
        fields["priorities"] = [f"{glob}={level}" for glob, level in settings.priorities]
    rate = settings.bytes_per_second
    fields |= {
        "rate": f"{_bytes(rate)} a second" if rate else "as fast as it can",
        "window": f"{settings.window} UTC" if settings.window else "always",
        "mirrors keep": _kept(settings),
        "hold": f"{_bytes(settings.hold_bytes)}, then {settings.overflow.value}" if settings.hold_bytes else "nothing",
        "also": [
            name for name, chosen in (("tables", settings.tables), ("schemas", settings.registry),
                                      ("groups", settings.groups)) if chosen
        ],
    }  # fmt: skip
    return fields


def _kept(settings: LinkSettings) -> str:
    if settings.follow_truncation:
        return "what their source keeps"
    policy = settings.retention
    if policy is None or policy.type is RetentionType.NONE:
        return "everything"
    if policy.type is RetentionType.TIME:
        return f"{policy.limit // _MS_PER_SECOND:,} s"
    return _bytes(policy.limit)


def _as_json(found: LinkInfo) -> dict[str, object]:
    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value if isinstance(value.value, str) else value.name.lower()
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list | tuple) else value

    shown: dict[str, object] = plain(asdict(found))
    return shown


def _bytes(number: int) -> str:
    return count_of(number, "byte")
