"""`sarit store`: a store of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sarit.cli.configured_commands import Configured, is_check
from sarit.cli.option_types import CLUSTER_INDEX_URL, CLUSTER_LOG_URL, CLUSTER_STORAGE_URL, Memory, Name
from sarit.cli.options import http_port_of, http_port_option
from sarit.cli.process_options import (
    address_options,
    cluster_option,
    config_option,
    log_options,
    machine_option,
    reload_of,
    scrub_option,
    shown_options,
    start_logs,
)
from sarit.cli.security_options import security_options
from sarit.cli.time_options import Windows, scaling_options, times_of
from sarit.cli.trace_options import trace_options
from sarit.coordination.limits import MAX_CONTAINERS, MAX_STORE_WEIGHT
from sarit.core.extras import require

if TYPE_CHECKING:
    from sarit.env.traces import TraceSettings
    from sarit.process.addresses import Advertised
    from sarit.process.security import SecurityConfig


@click.command(cls=Configured)
@config_option
@cluster_option
@click.option(
    "--id", "name", type=Name(), metavar="ID", help="Its name in the cluster; one at a time.  [default: MACHINE-PORT]"
)
@address_options(12345, "Wire protocol; 0 picks a free one.")
@http_port_option(9092, "Health.")
@machine_option
@click.option(
    "--weight",
    type=click.IntRange(0, MAX_STORE_WEIGHT),
    default=1,
    show_default=True,
    help="Its part of the containers, in relation to the weights of other stores.",
)
@click.option(
    "--memory",
    type=Memory(),
    metavar="SIZE",
    help="Bound on its memory, as 512M, 2G or bytes.  [default: a quarter of the machine's, at most 2G]",
)
@scrub_option
@scaling_options
@security_options
@click.option(
    "--containers",
    type=click.IntRange(1, MAX_CONTAINERS),
    help="Compared with what the cluster was made with, as are:",
)
@click.option("--log", type=CLUSTER_LOG_URL, metavar="URL", help="the durable log,")
@click.option("--index", type=CLUSTER_INDEX_URL, metavar="URL", help="the index,")
@click.option("--storage", type=CLUSTER_STORAGE_URL, metavar="URL", help="and long-term storage.")
@trace_options
@log_options
def store(
    cluster: str,
    name: str | None,
    host: str,
    port: int,
    advertise: Advertised | None,
    http_port: int,
    machine: str,
    weight: int,
    memory: int | None,
    scrub: int,
    scaling_windows: Windows,
    scaling_cool_down: float,
    containers: int | None,
    log: str | None,
    index: str | None,
    storage: str | None,
    log_level: str,
    log_format: str,
    security: SecurityConfig,
    traces: TraceSettings | None,
) -> None:
    """Run a store of a cluster: it serves the containers that the cluster gives it.

    Prints a line with "sarit is ready" when it is a member.  SIGTERM and Ctrl-C move its containers to the other stores
    (a minute at most) and stop; a second one, at least a second later, stops at once.  kill -9 loses nothing.
    """
    require("cluster", "`sarit store`")
    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import parse_cluster
    from sarit.cluster.store import run_store

    config = ProcessConfig(
        parse_cluster(cluster),
        machine,
        port,
        host,
        name,
        advertise,
        weight,
        memory,
        scrub_bytes_per_second=scrub,
        http_port=http_port_of(http_port),
        times=times_of(scaling_windows, scaling_cool_down),
        given={"containers": containers, "log": log, "index": index, "storage": storage},
        options=shown_options(),
        security=security,
        traces=traces,
    ).check()
    if is_check():
        return
    start_logs(log_level, log_format)
    run_store(config, reload_of(config.options))
