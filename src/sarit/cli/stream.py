"""`sarit stream`: streams and their configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import sarit
from sarit.cli.options import SEGMENT, STREAM, controller_option, format_option, show, show_rows
from sarit.core import cuts
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy

if TYPE_CHECKING:
    from sarit.client.core.values import StreamInfo
    from sarit.core.names import SegmentId, StreamName

_MS_PER_SECOND = 1000


@click.group()
def stream() -> None:
    """Create, list, inspect, scale, seal, truncate and delete streams."""


@stream.command()
@click.argument("name", type=STREAM)
@click.option(
    "--segments", type=click.IntRange(1), default=1, show_default=True, help="The initial number of segments."
)
@click.option("--events-per-second", type=click.IntRange(1), help="Scale by events per second and segment.")
@click.option("--kilobytes-per-second", type=click.IntRange(1), help="Scale by KB per second and segment.")
@click.option("--keep-seconds", type=click.IntRange(1), help="Retention by time.")
@click.option("--keep-bytes", type=click.IntRange(1), help="Retention by size.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be given several times.")
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
    tags: tuple[str, ...],
    create_scope: bool,
    controller: str,
    output: str,
) -> None:
    """Create stream SCOPE/STREAM; succeeds when it exists, and does not change it."""
    if events_per_second and kilobytes_per_second:
        raise click.UsageError("scale by events or by bytes, not by both")
    if keep_seconds and keep_bytes:
        raise click.UsageError("keep by time or by size, not by both")
    scaling = ScalingPolicy(min_segments=segments)
    if events_per_second:
        scaling = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, events_per_second, 2, segments)
    elif kilobytes_per_second:
        scaling = ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, kilobytes_per_second, 2, segments)
    retention = RetentionPolicy()
    if keep_seconds:
        retention = RetentionPolicy(RetentionType.TIME, keep_seconds * _MS_PER_SECOND)
    elif keep_bytes:
        retention = RetentionPolicy(RetentionType.SIZE, keep_bytes)
    with sarit.connect(controller) as client:
        if create_scope:
            client.create_scope(name.scope)
        created = client.create_stream(name, scaling=scaling, retention=retention, tags=tags)
    show(
        output,
        {"stream": str(name), "created": created},
        f"stream {name} {'created' if created else 'exists already, unchanged'}",
    )


@stream.command("list")
@click.argument("scope")
@click.option("--tag", help="Only streams with this tag.")
@click.option("--internal", is_flag=True, help="Also internal streams.")
@controller_option
@format_option
def list_streams(scope: str, tag: str | None, internal: bool, controller: str, output: str) -> None:
    """List the streams of SCOPE."""
    with sarit.connect(controller) as client:
        names = client.list_streams(scope, tag=tag, internal=internal)
    show_rows(output, [{"stream": str(name)} for name in names], ["stream"])


@stream.command()
@click.argument("name", type=STREAM)
@controller_option
@format_option
def info(name: StreamName, controller: str, output: str) -> None:
    """Show configuration, segments, head and tail of SCOPE/STREAM."""
    with sarit.connect(controller) as client:
        found = client.stream_info(name)
    show(output, _as_json(found), _as_text(found))


@stream.command()
@click.argument("name", type=STREAM)
@click.option("--segments", type=click.IntRange(1), help="A new number of segments: makes a new epoch.")
@click.option("--tag", "tags", multiple=True, help="The new tags, all of them.")
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@controller_option
@format_option
def update(
    name: StreamName, segments: int | None, tags: tuple[str, ...], no_tags: bool, controller: str, output: str
) -> None:
    """Change the configuration of SCOPE/STREAM."""
    with sarit.connect(controller) as client:
        client.update_stream(name, segments=segments, tags=() if no_tags else tags or None)
        found = client.stream_info(name)
    show(output, _as_json(found), _as_text(found))


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
        found = client.stream_info(name)
    show(output, _as_json(found), _as_text(found))


@stream.command()
@click.argument("name", type=STREAM)
@controller_option
@format_option
def epochs(name: StreamName, controller: str, output: str) -> None:
    """Show the epochs of SCOPE/STREAM, from the oldest that holds data: which segments it had, over which keys."""
    with sarit.connect(controller) as client:
        found = client.stream(name).epochs()
    rows = [
        {"epoch": epoch.number, "segment": _segment(s.segment), "low": s.low, "high": s.high}
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
@click.option("--yes", is_flag=True, help="Do not ask.")
@controller_option
@format_option
def delete(name: StreamName, seal: bool, yes: bool, controller: str, output: str) -> None:
    """Delete the sealed stream SCOPE/STREAM with all its data."""
    if not yes:
        click.confirm(f"delete stream {name} with all its data?", abort=True, err=True)
    with sarit.connect(controller) as client:
        client.delete_stream(name, seal=seal)
    show(output, {"stream": str(name), "deleted": True}, f"stream {name} deleted")


def _segment(segment: SegmentId) -> str:
    return f"{segment.number}.#epoch.{segment.epoch}"


def _as_json(found: StreamInfo) -> dict[str, object]:
    return {
        "stream": str(found.stream),
        "sealed": found.sealed,
        "tags": list(found.config.tags),
        "scaling": {
            "type": found.config.scaling.type.name.lower(),
            "target_rate": found.config.scaling.target_rate,
            "min_segments": found.config.scaling.min_segments,
        },
        "segments": [{"segment": _segment(s.segment), "low": s.low, "high": s.high} for s in found.segments],
        "head": cuts.to_text(found.head),
        "tail": cuts.to_text(found.tail),
        "head_offsets": {_segment(s): at for s, at in found.head.positions.items()},
        "tail_offsets": {_segment(s): at for s, at in found.tail.positions.items()},
    }


def _as_text(found: StreamInfo) -> str:
    lines = [
        f"stream    {found.stream}{' (sealed)' if found.sealed else ''}",
        f"scaling   {found.config.scaling.type.name.lower()}, at least {found.config.scaling.min_segments} segments",
        f"tags      {', '.join(found.config.tags) or '-'}",
    ]
    tail = found.tail.positions
    lines += [
        f"segment   {_segment(s.segment)}  [{s.low:.4f}, {s.high:.4f})  {tail.get(s.segment, 0)} bytes"
        for s in found.segments
    ]
    return "\n".join([*lines, f"head      {cuts.to_text(found.head)}", f"tail      {cuts.to_text(found.tail)}"])
