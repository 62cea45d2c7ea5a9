"""The options that choose the settings of a link, for a new one and for an existing one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from sarit.cli.option_types import Memory
from sarit.core.links import HoldOverflow, LinkDirection, LinkSettings
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.core.times import parse_time

if TYPE_CHECKING:
    from sarit.cli.options import Command

_MS_PER_SECOND: Final = 1000
# The options that have the name of their setting, and its value.
_DIRECT: Final = (
    "user", "password", "ca", "window", "bytes_per_second", "hold_bytes", "tables", "registry", "groups", "restart",
    "discard_divergent",
)  # fmt: skip
_FROM_TAIL: Final = -1


def settings_options(command: Command) -> Command:
    """Add the options of a link that may change."""
    for option in reversed(
        (
            click.option("--user", help="Who to log in as at the peer."),
            click.option(
                "--password",
                metavar="file:PATH|env:NAME",
                help="Where the node finds the password, never the password: a file whose name ends in .password, or a "
                "variable of the node that begins with SARIT_LINK_.",
            ),
            click.option("--ca", metavar="PATH", help="The file on the node with the peer's certificates."),
            click.option(
                "--include", multiple=True, metavar="GLOB", help="Streams to copy, as 'factory/*'; may be repeated."
            ),
            click.option("--exclude", multiple=True, metavar="GLOB", help="Streams not to copy."),
            click.option(
                "--priority", "priorities", multiple=True, metavar="GLOB=CLASS", callback=_priorities,
                help="Streams to copy before others, as 'factory/alarm*=9'; the first glob that matches counts.",
            ),
            click.option("--bytes-per-second", type=Memory(), help="The most to copy, as 1M; 0: as fast as it can."),
            click.option("--window", metavar="HH:MM-HH:MM", help="Copy in these hours of the day (UTC) alone."),
            click.option("--keep-seconds", type=click.IntRange(1), help="Retention of mirrors, by time."),
            click.option("--keep-bytes", type=click.IntRange(1), help="Retention of mirrors, by size."),
            click.option("--follow-truncation", is_flag=True, help="Truncate mirrors where their source is truncated."),
            click.option("--keep-all", is_flag=True, help="Mirrors keep everything (the default)."),
            click.option(
                "--hold", "hold_bytes", type=Memory(),
                help="What the source keeps for the link beyond its own retention, as 10G; 0: nothing.  A pull's hold "
                "has no bound.",
            ),
            click.option(
                "--hold-overflow", "overflow", type=click.Choice([one.value for one in HoldOverflow]),
                help="When the hold is full: writers wait, or the oldest bytes may be dropped, and are "
                "counted (links that push).",
            ),
            click.option("--tables/--no-tables", default=None, help="Copy key-value tables.  [default: tables]"),
            click.option("--schemas/--no-schemas", "registry", default=None, help="Copy schemas.  [default: schemas]"),
            click.option("--groups/--no-groups", default=None, help="Copy positions of reader groups.  "
                         "[default: no-groups]"),
            click.option("--restart/--no-restart", default=None,
                         help="If the source has dropped bytes before they were copied, begin the mirror again behind "
                         "them.  [default: no-restart]"),
            click.option("--discard-divergent/--keep-divergent", default=None,
                         help="Give up, after an export, what this side has and the promoted peer has not.  "
                         "[default: keep-divergent]"),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _priorities(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, int], ...]:  # fmt: skip
    found = []
    for text in given:
        glob, equals, level = text.rpartition("=")
        try:
            found.append((glob, int(level)))
        except ValueError:
            equals = ""
        if not equals:
            raise click.BadParameter(f"{text!r}: give GLOB=CLASS, as 'factory/alarm*=9'")
    return tuple(found)


def new_settings(direction: str, peer: str, start: str, now_ms: int, chosen: dict[str, Any]) -> LinkSettings:
    """Return the settings of a new link.  Raises Invalid: the start is no time."""
    start_ms = {"head": 0, "tail": _FROM_TAIL}.get(start)
    if start_ms is None:
        start_ms = parse_time(start, now_ms)
    return changed_settings(LinkSettings(LinkDirection(direction), peer, start_ms=start_ms), chosen)


def changed_settings(settings: LinkSettings, chosen: dict[str, Any]) -> LinkSettings:
    """Return settings with what was chosen on the command line, and nothing else."""
    changes: dict[str, Any] = {
        name: chosen[name]
        for name in (*_DIRECT, "password", "tables", "registry", "groups")
        if chosen[name] is not None
    }
    changes |= {name: chosen[name] for name in ("include", "exclude", "priorities") if chosen[name]}
    if chosen.get("peer") is not None:
        changes["peer"] = chosen["peer"]
    if chosen["overflow"] is not None:
        changes["overflow"] = HoldOverflow(chosen["overflow"])
    return replace(settings, **changes, **_kept(chosen))


def _kept(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of what mirrors keep."""
    given = [name for name in ("keep_seconds", "keep_bytes", "keep_all", "follow_truncation") if chosen[name]]
    if len(given) > 1:
        raise click.UsageError("mirrors keep by time, by size, as their source does, or all: give one of these options")
    if not given:
        return {}
    retention = None
    if chosen["keep_seconds"]:
        retention = RetentionPolicy(RetentionType.TIME, chosen["keep_seconds"] * _MS_PER_SECOND)
    elif chosen["keep_bytes"]:
        retention = RetentionPolicy(RetentionType.SIZE, chosen["keep_bytes"])
    return {"retention": retention, "follow_truncation": bool(chosen["follow_truncation"])}
