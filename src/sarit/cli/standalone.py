"""`sarit standalone`: a whole node in one process."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from sarit.core import limits


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("sarit-data"),
    show_default=True,
    help="Where all data is stored; created if missing.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, which clients get, too.")
@click.option("--controller-port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="gRPC.")
@click.option("--store-port", type=click.IntRange(0, 65535), default=12345, show_default=True, help="Wire protocol.")
@click.option(
    "--containers",
    type=click.IntRange(1, limits.MAX_CONTAINERS),
    default=4,
    show_default=True,
    help="Partitions of the segments, each with a log of its own; fixed when the data directory is created.",
)
@click.option(
    "--storage", metavar="URL", help="Long-term storage: file:///DIR or s3://BUCKET/PREFIX.  [default: in DIR]"
)
@click.option("--one-port", is_flag=True, help="Serve the wire protocol on the controller's port too.")
@click.option("--advertise", metavar="HOST", help="The address that clients get.  [default: --host]")
@click.option(
    "--scaling-windows",
    type=float,
    nargs=4,
    default=(120.0, 300.0, 600.0, 1200.0),
    show_default=True,
    help="Seconds over which the rates of segments are averaged, for streams that scale by rate; shortest first.",
)
@click.option(
    "--scaling-cool-down",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="Seconds before a new segment is scaled again.",
)
@click.option(
    "--retention-interval",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Least seconds between two evaluations of the retention policy of a stream.",
)
@click.option(
    "--watermark-interval",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds between two evaluations of the times that writers note.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log, on standard error.",
)
def standalone(
    data_dir: Path,
    host: str,
    controller_port: int,
    store_port: int,
    containers: int,
    storage: str | None,
    one_port: bool,
    advertise: str | None,
    scaling_windows: tuple[float, float, float, float],
    scaling_cool_down: float,
    retention_interval: float,
    watermark_interval: float,
    log_level: str,
) -> None:
    """Run controller and segment store in one process, on one data directory.

    Prints a line with "sarit is ready" when it serves.  SIGTERM and Ctrl-C flush and stop; a second one, at least a
    second later, does not wait for the flush.  Acknowledged data is always on disk, so kill -9 loses nothing.
    """
    from sarit.controller.times import RetentionTimes, ScalingTimes, Times, WatermarkTimes
    from sarit.node.settings import NodeConfig
    from sarit.node.standalone import run

    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if log_level == "info":
        logging.getLogger("grpclib").setLevel(logging.WARNING)  # grpclib logs a line for each cancelled call
    run(
        NodeConfig(
            data_dir=str(data_dir),
            host=host,
            controller_port=controller_port,
            store_port=store_port,
            containers=containers,
            storage_url=storage,
            one_port=one_port,
            advertised_host=advertise,
            times=Times(
                ScalingTimes(scaling_windows, scaling_windows[0] / 24, scaling_cool_down, scaling_cool_down),
                RetentionTimes(retention_interval),
                WatermarkTimes(watermark_interval),
            ),
        )
    )
