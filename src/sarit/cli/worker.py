"""`sarit worker`: a process of a cluster that runs background jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sarit.cli.configured_commands import Configured, is_check
from sarit.cli.option_types import Host
from sarit.cli.options import http_port_of, http_port_option
from sarit.cli.process_options import (
    catalogs_option,
    cluster_option,
    config_option,
    log_options,
    machine_option,
    reload_of,
    shown_options,
    start_logs,
)
from sarit.cli.security_options import security_options
from sarit.cli.trace_options import trace_options
from sarit.core.extras import require

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.env.traces import TraceSettings
    from sarit.process.security import SecurityConfig


@click.command(cls=Configured)
@config_option
@cluster_option
@click.option("--host", type=Host(), default="127.0.0.1", show_default=True, help="Address of its HTTP port.")
@http_port_option(9093, "Health and metrics.")
@catalogs_option
@machine_option
@security_options
@trace_options
@log_options
def worker(
    cluster: str,
    host: str,
    http_port: int,
    catalogs: Path | None,
    machine: str,
    log_level: str,
    log_format: str,
    security: SecurityConfig,
    traces: TraceSettings | None,
) -> None:
    """Run background jobs of a cluster, as those that commit streams to tables.  Any number may run.

    Jobs are shared out among the workers and the controllers with --jobs on.  When a worker ends, however it does, the
    others go on with its jobs.
    """
    require("cluster", "`sarit worker`")
    from sarit.cluster.process_config import ProcessConfig
    from sarit.cluster.settings import parse_cluster
    from sarit.cluster.worker import run_worker

    config = ProcessConfig(
        parse_cluster(cluster),
        machine,
        0,
        host,
        http_port=http_port_of(http_port),
        catalogs=None if catalogs is None else str(catalogs.absolute()),
        jobs=True,
        options=shown_options(),
        security=security,
        traces=traces,
    ).check()
    if is_check():
        return
    start_logs(log_level, log_format)
    run_worker(config, reload_of(config.options))
