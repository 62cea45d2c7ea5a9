"""`sarit stream`: streams and their configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import sarit
from sarit.cli.iceberg_options import (
    IcebergChange,
    change_table,
    iceberg_options,
    new_settings,
    no_iceberg_option,
    table_lines,
)
from sarit.cli.job_status import lag_bytes
from sarit.cli.names import SCOPE, SEGMENT, STREAM
from sarit.cli.options import Commands, confirm, controller_option, count_of, format_option, show, show_rows, yes_option
from sarit.cli.search_options import (
    SearchChange,
    change_index,
    index_lines,
    new_index_settings,
    not_searchable_option,
    search_options,
)
from sarit.cli.stream_jobs import jobs
from sarit.client.streams.iceberg import ICEBERG_JOB, table_of
from sarit.client.streams.search_index import index_of
from sarit.core import cuts
from sarit.core.errors import Invalid
from sarit.core.names import is_user_name
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.core.properties import check_change
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.cli.options import Command
    from sarit.client.blocking.client import Client
    from sarit.client.core.values import StreamInfo
    from sarit.core.names import SegmentId, StreamName

_MS_PER_SECOND = 1000


@click.group(cls=Commands)
def stream() -> None:
    """Create, list, inspect, scale, seal, truncate and delete streams."""


def policy_options(command: Command) -> Command:
    """Return the options that choose scaling and retention, for a new stream and for an existing one."""
    for option in reversed(
        (
            click.option(
                "--events-per-second", type=click.IntRange(1), help="Scale by events per second and segment."
            ),
            click.option("--kilobytes-per-second", type=click.IntRange(1), help="Scale by KB per second and segment."),
            click.option("--keep-seconds", type=click.IntRange(1), help="Retention by time."),
            click.option("--keep-bytes", type=click.IntRange(1), help="Retention by size."),
            click.option(
                "--keep-at-most", type=click.IntRange(1), metavar="N",
                help="Drop what exceeds N (seconds or bytes, as the retention) even if a reader group still needs it.",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def property_option(command: Command) -> Command:
    """Return the option that names properties."""
    return click.option(
        "--property", "properties", multiple=True, metavar="NAME=VALUE", callback=_properties,
        help="A property, as time-unit=milliseconds; without a value: remove it.  May be given several times.",
    )(command)  # fmt: skip


def _properties(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in found:
            raise click.BadParameter(f"{text!r}: give NAME=VALUE, and each name once")
        try:
            check_change({name: value})
        except Invalid as error:
            raise click.BadParameter(str(error)) from None
        found[name] = value or None
    return found


def scaling_of(by_events: int | None, by_kilobytes: int | None, segments: int) -> ScalingPolicy | None:
    """Return the policy that the options name, None when they name none.  Raises UsageError."""
    if by_events and by_kilobytes:
        raise click.UsageError("scale by events or by bytes, not by both")
    if by_events:
        return ScalingPolicy(ScaleType.EVENTS_PER_SECOND, by_events, 2, segments)
    if by_kilobytes:
        return ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, by_kilobytes, 2, segments)
    return None


def retention_of(seconds: int | None, size: int | None, at_most: int | None) -> RetentionPolicy | None:
    """Return the policy that the options name, None when they name none.  Raises UsageError, Invalid."""
    if seconds and size:
        raise click.UsageError("keep by time or by size, not by both")
    if seconds:
        found = RetentionPolicy(RetentionType.TIME, seconds * _MS_PER_SECOND, (at_most or 0) * _MS_PER_SECOND)
    elif size:
        found = RetentionPolicy(RetentionType.SIZE, size, at_most or 0)
    elif at_most:
        raise click.UsageError("--keep-at-most needs --keep-seconds or --keep-bytes")
    else:
        return None
    found.check()
    return found


@stream.command()
@click.argument("name", type=STREAM)
@click.option(
    "--segments", type=click.IntRange(1), default=1, show_default=True, help="The initial number of segments."
)
@policy_options
@click.option("--tag", "tags", multiple=True, help="A tag; may be given several times.")
@property_option
@iceberg_options
@search_options
@click.option("--create-scope", is_flag=True, help="Create the scope, too, if it is missing.")
@controller_option
@format_option
def create(
    name: StreamName,
    segments: int,
    events_per_second: int | None,
    kilobytes_per_second: int | None,
    keep_seconds: int | None,
    keep_bytes: int | None,
    keep_at_most: int | None,
    tags: tuple[str, ...],
    properties: dict[str, str | None],
    iceberg: IcebergChange,
    search: SearchChange,
    create_scope: bool,
    controller: str,
    output: str,
) -> None:
    """Create stream SCOPE/STREAM; succeeds when it exists, and does not change it."""
    scaling = scaling_of(events_per_second, kilobytes_per_second, segments) or ScalingPolicy(min_segments=segments)
    retention = retention_of(keep_seconds, keep_bytes, keep_at_most) or RetentionPolicy()
    settings = new_settings(iceberg).encode() if iceberg else b""
    index = new_index_settings(search).encode() if search else b""
    with sarit.connect(controller) as client:
        if create_scope:
            client.create_scope(name.scope)
        created = client.create_stream(name, scaling=scaling, retention=retention, tags=tags)
        if created and properties:
            client.stream(name).set_properties(properties)
        if created and settings:
            try:
                client.stream(name).create_job(ICEBERG_JOB, settings)
            except Invalid as error:
                raise Invalid(f"stream {name} was created, but is no table: {error}") from None
        if created and index:
            try:
                client.stream(name).create_job(SEARCH_KIND, index, SEARCH_JOB)
            except Invalid as error:
                raise Invalid(f"stream {name} was created, but has no index: {error}") from None
    show(
        output,
        {"stream": str(name), "created": created},
        f"stream {name} {'created' if created else 'exists already, unchanged'}",
    )


@stream.command("list")
@click.argument("scope", type=SCOPE, required=False)
@click.option("--tag", help="Only streams with this tag.")
@click.option("--internal", is_flag=True, help="Also internal streams.")
@controller_option
@format_option
def list_streams(scope: str | None, tag: str | None, internal: bool, controller: str, output: str) -> None:
    """List the streams of SCOPE, or of all scopes."""
    with sarit.connect(controller) as client:
        scopes = (
            [found for found in client.list_scopes() if internal or is_user_name(found)] if scope is None else [scope]
        )
        names = [name for found in scopes for name in client.list_streams(found, tag=tag, internal=internal)]
    show_rows(output, [{"stream": str(name)} for name in names], ["stream"])


@stream.command()
@click.argument("name", type=STREAM)
@controller_option
@format_option
def info(name: StreamName, controller: str, output: str) -> None:
    """Show configuration, segments, stored bytes, head and tail of SCOPE/STREAM."""
    with sarit.connect(controller) as client:
        _show_stream(client, name, output)


@stream.command()
@click.argument("name", type=STREAM)
@click.option("--segments", type=click.IntRange(1), help="The new least number of segments: makes a new epoch.")
@click.option("--fixed", is_flag=True, help="Do not scale by rate any more.")
@policy_options
@click.option("--keep-all", is_flag=True, help="No retention any more: nothing is dropped.")
@click.option("--tag", "tags", multiple=True, help="The new tags, all of them.")
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@property_option
@iceberg_options
@no_iceberg_option
@search_options
@not_searchable_option
@controller_option
@format_option
def update(
    name: StreamName,
    segments: int | None,
    fixed: bool,
    events_per_second: int | None,
    kilobytes_per_second: int | None,
    keep_seconds: int | None,
    keep_bytes: int | None,
    keep_at_most: int | None,
    keep_all: bool,
    tags: tuple[str, ...],
    no_tags: bool,
    properties: dict[str, str | None],
    iceberg: IcebergChange,
    search: SearchChange,
    controller: str,
    output: str,
) -> None:
    """Change the settings of SCOPE/STREAM that are given and no others; show all of them."""
    if fixed and (events_per_second or kilobytes_per_second):
        raise click.UsageError("--fixed, or scale by a rate, not both")
    if keep_all and (keep_seconds or keep_bytes or keep_at_most):
        raise click.UsageError("--keep-all, or a retention, not both")
    if no_tags and tags:
        raise click.UsageError("--tag or --no-tags, not both")
    retention = RetentionPolicy() if keep_all else retention_of(keep_seconds, keep_bytes, keep_at_most)
    with sarit.connect(controller) as client:
        least = segments or client.stream_info(name).config.scaling.min_segments
        scaling = ScalingPolicy(min_segments=least) if fixed else None
        scaling = scaling or scaling_of(events_per_second, kilobytes_per_second, least)
        others = segments is not None or scaling is not None or retention is not None or tags or no_tags
        if not others and not properties and not iceberg and not search:
            raise click.UsageError("name at least one setting to change (see sarit stream update --help)")
        if properties:
            client.stream(name).set_properties(properties)
        if others:
            client.update_stream(
                name, segments=segments, scaling=scaling, retention=retention, tags=() if no_tags else tags or None
            )
        if iceberg:
            change_table(client, name, iceberg)
        if search:
            change_index(client, name, search)
        _show_stream(client, name, output)


@stream.command()
@click.argument("name", type=STREAM)
@click.option("--segments", type=click.IntRange(1), help="Replace all segments by that many of equal width.")
@click.option("--split", type=SEGMENT, help="Replace this segment, as NUMBER.#epoch.EPOCH, by two or more.")
@click.option("--into", type=click.IntRange(2), default=2, show_default=True, help="How many to split it into.")
@click.option("--merge", type=SEGMENT, multiple=True, help="Replace these neighbours by one; give it twice or more.")
@controller_option
@format_option
def scale(
    name: StreamName,
    segments: int | None,
    split: SegmentId | None,
    into: int,
    merge: tuple[SegmentId, ...],
    controller: str,
    output: str,
) -> None:
    """Change the segments of SCOPE/STREAM now, while writers and readers go on."""
    if [segments is not None, split is not None, bool(merge)].count(True) != 1:
        raise click.UsageError("give one of --segments, --split and --merge")
    with sarit.connect(controller) as client:
        handle = client.stream(name)
        if segments is not None:
            handle.scale(segments)
        elif split is not None:
            handle.split(split, into)
        else:
            handle.merge(merge)
        _show_stream(client, name, output)


@stream.command()
@click.argument("name", type=STREAM)
@controller_option
@format_option
def epochs(name: StreamName, controller: str, output: str) -> None:
    """Show the epochs of SCOPE/STREAM, from the oldest that holds data: which segments it had, over which keys."""
    with sarit.connect(controller) as client:
        found = client.stream(name).epochs()
    rows = [
        {"epoch": epoch.number, "segment": str(s.segment), "low": s.low, "high": s.high}
        for epoch in found
        for s in epoch.segments
    ]
    show_rows(output, rows, ["epoch", "segment", "low", "high"])


@stream.command()
@click.argument("name", type=STREAM)
@controller_option
@format_option
def seal(name: StreamName, controller: str, output: str) -> None:
    """Seal SCOPE/STREAM: it accepts no more events, for ever."""
    with sarit.connect(controller) as client:
        client.seal_stream(name)
    show(output, {"stream": str(name), "sealed": True}, f"stream {name} sealed")


@stream.command()
@click.argument("name", type=STREAM)
@click.argument("cut")
@controller_option
@format_option
def truncate(name: StreamName, cut: str, controller: str, output: str) -> None:
    """Drop everything in SCOPE/STREAM before CUT: "tail", or the text of a stream cut."""
    with sarit.connect(controller) as client:
        client.truncate_stream(name, cut=cut)
    show(output, {"stream": str(name), "truncated": cut}, f"stream {name} truncated")


@stream.command()
@click.argument("name", type=STREAM)
@click.option("--seal", is_flag=True, help="Seal it first.")
@yes_option
@controller_option
@format_option
def delete(name: StreamName, seal: bool, yes: bool, controller: str, output: str) -> None:
    """Delete the sealed stream SCOPE/STREAM with all its data."""
    confirm(f"delete stream {name} with all its data?", yes=yes)
    with sarit.connect(controller) as client:
        client.delete_stream(name, seal=seal)
    show(output, {"stream": str(name), "deleted": True}, f"stream {name} deleted")


@stream.command()
@click.argument("name", type=STREAM)
@click.option("--drop", metavar="SCOPE/GROUP", help="End the hold of this group; it goes on reading.")
@controller_option
@format_option
def subscribers(name: StreamName, drop: str | None, controller: str, output: str) -> None:
    """List the reader groups that keep data of SCOPE/STREAM from its retention."""
    with sarit.connect(controller) as client:
        if drop is None:
            show_rows(output, [{"group": group} for group in client.stream(name).subscribers()], ["group"])
            return
        dropped = client.stream(name).drop_subscriber(drop)
    text = f"{drop} {'keeps no data of' if dropped else 'kept no data of'} {name}"
    show(output, {"stream": str(name), "group": drop, "dropped": dropped}, text)


stream.add_command(jobs)


def _show_stream(client: Client, name: StreamName, output: str) -> None:
    found = client.stream_info(name)
    stored, handle = _stored_bytes(client, found), client.stream(name)
    properties, created, background = handle.properties(), handle.creation_id(), handle.jobs()
    table, index = table_of(background), index_of(background)
    shown: dict[str, object] = {"properties": properties, "creation_id": None if created is None else created.hex()}
    shown["mirror"] = link = handle.link() or None
    text = ", ".join(f"{each}={value}" for each, value in properties.items()) or "-"
    lines = [_as_text(found, stored), f"properties {text}"]
    if link is not None:
        lines.append(f"mirror    of link {link}, read-only until it is promoted")
    shown["iceberg"] = None
    if table is not None:
        lag = lag_bytes(client, name, table.job)
        shown["iceberg"] = table.document(lag)
        lines += [f"{label:<10}{value}" for label, value in table_lines(table, lag)]
    shown["search"] = None
    if index is not None:
        lag = lag_bytes(client, name, index.job)
        shown["search"] = index.document(lag)
        lines += [f"{label:<10}{value}" for label, value in index_lines(index, lag)]
    show(output, _as_json(found, stored) | shown, "\n".join(lines))


def _stored_bytes(client: Client, found: StreamInfo) -> dict[SegmentId, int]:
    """Bytes from head to tail by segment, sealed segments of earlier epochs included."""
    wanted = {s.segment for epoch in client.stream(found.stream).epochs() for s in epoch.segments}
    wanted |= set(found.head.positions) | set(found.tail.positions)
    infos = client.segment_infos(found.stream, sorted(wanted))
    return {s: max(0, i.end_offset - max(i.start_offset, found.head.positions.get(s, 0))) for s, i in infos.items()}


def _as_json(found: StreamInfo, stored: Mapping[SegmentId, int]) -> dict[str, object]:
    retention = found.config.retention
    return {
        "stream": str(found.stream),
        "sealed": found.sealed,
        "tags": list(found.config.tags),
        "scaling": {
            "type": found.config.scaling.type.name.lower(),
            "target_rate": found.config.scaling.target_rate,
            "scale_factor": found.config.scaling.scale_factor,
            "min_segments": found.config.scaling.min_segments,
        },
        "retention": {
            "type": retention.type.name.lower(),
            "unit": {RetentionType.TIME: "ms", RetentionType.SIZE: "bytes"}.get(retention.type),
            "limit": retention.limit,
            "maximum": retention.maximum,
        },
        "segments": [
            {"segment": str(s.segment), "low": s.low, "high": s.high, "bytes": stored.get(s.segment, 0)}
            for s in found.segments
        ],
        "bytes": sum(stored.values()),
        "head": cuts.to_text(found.head),
        "tail": cuts.to_text(found.tail),
        "head_offsets": {str(s): at for s, at in found.head.positions.items()},
        "tail_offsets": {str(s): at for s, at in found.tail.positions.items()},
    }


def _as_text(found: StreamInfo, stored: Mapping[SegmentId, int]) -> str:
    lines = [
        f"stream    {found.stream}{' (sealed)' if found.sealed else ''}",
        f"scaling   {_scaling_text(found.config.scaling)}",
        f"retention {_retention_text(found.config.retention)}",
        f"tags      {', '.join(found.config.tags) or '-'}",
    ]
    lines += [
        f"segment   {s.segment}  [{s.low:.4f}, {s.high:.4f})  {count_of(stored.get(s.segment, 0), 'byte')}"
        for s in found.segments
    ]
    earlier = [size for segment, size in stored.items() if segment not in {s.segment for s in found.segments}]
    if any(earlier):
        lines.append(f"earlier   {count_of(len(earlier), 'sealed segment')}  {count_of(sum(earlier), 'byte')}")
    lines.append(f"total     {count_of(sum(stored.values()), 'byte')}")
    return "\n".join([*lines, f"head      {cuts.to_text(found.head)}", f"tail      {cuts.to_text(found.tail)}"])


def _scaling_text(policy: ScalingPolicy) -> str:
    least = f"at least {count_of(policy.min_segments, 'segment')}"
    if policy.type == ScaleType.FIXED:
        return f"fixed, {least}"
    unit = "events" if policy.type == ScaleType.EVENTS_PER_SECOND else "KB"
    return f"{policy.target_rate:,} {unit} per second and segment, {least}"


def _retention_text(policy: RetentionPolicy) -> str:
    if policy.type == RetentionType.NONE:
        return "all data is kept"
    if policy.type == RetentionType.TIME:
        unit, scale = "second", _MS_PER_SECOND
    else:
        unit, scale = "byte", 1
    most = f", at most {count_of(policy.maximum // scale, unit)}" if policy.maximum else ""
    return f"keeps {count_of(policy.limit // scale, unit)}{most}"
