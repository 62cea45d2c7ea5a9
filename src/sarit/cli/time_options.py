"""Options for the intervals of background work, of a node and of the processes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from sarit.cli.options import Command
    from sarit.controller.times import Times

Windows: TypeAlias = tuple[float, float, float, float]


def scaling_options(command: Command) -> Command:
    """`--scaling-windows` and `--scaling-cool-down`."""
    command = click.option(
        "--scaling-cool-down",
        type=click.FloatRange(0),
        default=600.0,
        show_default=True,
        help="Seconds before a new segment is scaled again.",
    )(command)
    return click.option(
        "--scaling-windows",
        type=float,
        nargs=4,
        default=(120.0, 300.0, 600.0, 1200.0),
        show_default=True,
        help="Seconds over which the rates of segments are averaged, for streams that scale by rate; shortest first.",
    )(command)


def background_options(command: Command) -> Command:
    """`--retention-interval` and `--watermark-interval`."""
    command = click.option(
        "--watermark-interval",
        type=click.FloatRange(0, min_open=True),
        default=10.0,
        show_default=True,
        help="Seconds between two evaluations of the times that writers note.",
    )(command)
    return click.option(
        "--retention-interval",
        type=click.FloatRange(0, min_open=True),
        default=60.0,
        show_default=True,
        help="Least seconds between two evaluations of the retention policy of a stream.",
    )(command)


def times_of(
    scaling_windows: Windows,
    scaling_cool_down: float,
    retention_interval: float | None = None,
    watermark_interval: float | None = None,
) -> Times:
    """Return the times that the options give; None: the process has no such option.  Raises Invalid."""
    from sarit.controller.times import RetentionTimes, ScalingTimes, Times, WatermarkTimes

    times = Times(
        ScalingTimes(scaling_windows, scaling_windows[0] / 24, scaling_cool_down, scaling_cool_down),
        RetentionTimes() if retention_interval is None else RetentionTimes(retention_interval),
        WatermarkTimes() if watermark_interval is None else WatermarkTimes(watermark_interval),
    )
    times.check()
    return times
