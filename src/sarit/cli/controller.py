"""`sarit controller`: a controller of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sarit.cli.configured_commands import Configured, is_check
from sarit.cli.options import http_port_of, http_port_option, registry_of, registry_options
from sarit.cli.process_options import (
    address_options,
    catalogs_option,
    cluster_option,
    config_option,
    jobs_option,
    log_options,
    machine_option,
    reload_of,
    shown_options,
    start_logs,
)
from sarit.cli.security_options import security_options
from sarit.cli.time_options import Windows, background_options, scaling_options, times_of
from sarit.cli.trace_options import trace_options
from sarit.core.extras import require

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.env.traces import TraceSettings
    from sarit.process.addresses import Advertised
    from sarit.process.security import SecurityConfig


@click.command(cls=Configured)
@config_option
@cluster_option
@address_options(9090, "gRPC; 0 picks a free one.")
@http_port_option(9091, "Health.")
@registry_options
@catalogs_option
@jobs_option
@machine_option
@click.option(
    "--expect",
    type=click.IntRange(1),
    metavar="N",
    help="A new cluster waits for so many stores, 5 seconds at most, before it gives containers to them.",
)
@scaling_options
@security_options
@background_options
@trace_options
@log_options
def controller(
    cluster: str,
    host: str,
    port: int,
    advertise: Advertised | None,
    http_port: int,
    registry: str,
    registry_port: int,
    catalogs: Path | None,
    jobs: str,
    machine: str,
    expect: int | None,
    scaling_windows: Windows,
    scaling_cool_down: float,
    retention_interval: float,
    watermark_interval: float,
    log_level: str,
    log_format: str,
    security: SecurityConfig,
    traces: TraceSettings | None,
) -> None:
    """Run a controller of a cluster.  Any number may run; each answers every call.

    Prints a line with "sarit is ready" when it serves: it waits for the stores of its tables.
    """
    require("cluster", "`sarit controller`")
    from sarit.cluster.controller import run_controller
    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import parse_cluster

    config = ProcessConfig(
        parse_cluster(cluster),
        machine,
        port,
        host,
        advertised=advertise,
        expected=expect,
        http_port=http_port_of(http_port),
        registry=registry_of(registry, registry_port),
        catalogs=None if catalogs is None else str(catalogs.absolute()),
        jobs=jobs == "on",
        times=times_of(scaling_windows, scaling_cool_down, retention_interval, watermark_interval),
        options=shown_options(),
        security=security,
        traces=traces,
    ).check()
    if is_check():
        return
    start_logs(log_level, log_format)
    run_controller(config, reload_of(config.options))
