"""`sarit standalone`: a whole node."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sarit.cli.configured_commands import Configured, OneStart, config_option, is_check
from sarit.cli.dev_node import dev_option, dev_settings
from sarit.cli.edge_profile import profile_option, with_profile
from sarit.cli.option_types import BOOKKEEPER_URL, S3_URL, STORAGE_URL, Advertise, Host, Memory, Processes
from sarit.cli.options import http_port_of, http_port_option, registry_of, registry_options
from sarit.cli.process_options import (
    catalogs_option,
    jobs_option,
    log_options,
    reload_of,
    scrub_option,
    shown_options,
    start_logs,
    zookeeper_option,
)
from sarit.cli.security_options import security_options
from sarit.cli.time_options import background_options, scaling_options, times_of
from sarit.cli.trace_options import trace_options
from sarit.coordination.limits import MAX_CONTAINERS
from sarit.core.extras import require

if TYPE_CHECKING:
    from sarit.env.traces import TraceSettings
    from sarit.process.addresses import Advertised
    from sarit.process.security import SecurityConfig
    from sarit.process.settings import NodeConfig


@click.command(cls=Configured)
@config_option
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("sarit-data"),
    show_default=True,
    help="Where all data is stored; created if missing.",
)
@dev_option
@profile_option
@click.option(
    "--host",
    type=Host(),
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on, which clients get, too.",
)
@click.option("--controller-port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="gRPC.")
@click.option("--store-port", type=click.IntRange(0, 65535), default=12345, show_default=True, help="Wire protocol.")
@click.option(
    "--containers",
    type=click.IntRange(1, MAX_CONTAINERS),
    default=4,
    show_default=True,
    help="Partitions of the segments, each with a log of its own; fixed when the data directory is created.",
)
@click.option(
    "--storage",
    type=STORAGE_URL,
    metavar="URL",
    help="Long-term storage: file:///DIR, s3://BUCKET/PREFIX or hdfs://NAMENODE:PORT/DIR.  [default: in DIR]",
)
@click.option(
    "--index-storage",
    type=S3_URL,
    metavar="URL",
    help="Indexes on an object store: s3://BUCKET/PREFIX.  Needs sarit[cluster].  [default: in DIR]",
)
@click.option(
    "--log",
    type=BOOKKEEPER_URL,
    metavar="URL",
    help="Durable log: bookkeeper://ZK1:2181,ZK2:2181/ledgers?e=3&w=3&a=2, with the servers of ZooKeeper, the path of "
    "the ledgers there, and ensemble size, write quorum and ack quorum.  Needs sarit[cluster].  [default: in DIR]",
)
@zookeeper_option
@click.option(
    "--memory",
    type=Memory(),
    metavar="SIZE",
    help="Bound on the node's memory, as 512M, 2G or bytes: data that is not in long-term storage yet, caches, "
    "metadata, connections, compaction.  Not in it: the program itself (about 80M), API calls, the kernel's page "
    "cache.  [default: a quarter of the machine's, at most 2G]",
)
@scrub_option
@click.option(
    "--processes",
    type=Processes(),
    metavar="N",
    default=1,
    help="Store processes, so that more cores count; the controller is then one more.  auto: one for two cores, at "
    "most 8.  Store k listens on --store-port + k.  [default: 1, with the controller in it]",
)
@http_port_option(9091, "Console, REST, metrics and health.  With --processes those of the stores follow.")
@registry_options
@catalogs_option
@jobs_option
@click.option("--one-port/--no-one-port", help="Serve the wire protocol on the controller's port too.")
@click.option(
    "--advertise",
    type=Advertise(2),
    metavar="HOST[:CONTROLLER[:STORE]]",
    help="The address that clients get, with its ports where they are mapped to those of the node; with --processes "
    "store k is at STORE + k.  [default: --host and the ports]",
)
@scaling_options
@background_options
@security_options
@click.option(
    "--allow-damaged/--no-allow-damaged",
    help="Start although containers are damaged or miss a piece; requests for their segments fail with the reason.",
)
@click.option(
    "--accept-data-loss",
    cls=OneStart,
    is_flag=True,
    help="Start once without the pieces of --data-dir that are missing or damaged.  What only they held is lost for "
    "good, and putting them back later is refused.  The log says what was lost.  On the command line alone.",
)
@trace_options
@log_options
def standalone(
    data_dir: Path, dev: bool, profile: str | None, host: str, controller_port: int, store_port: int, containers: int,
    storage: str | None, index_storage: str | None, log: str | None, memory: int | None, scrub: int, processes: int,
    http_port: int, registry: str, registry_port: int, catalogs: Path | None, jobs: str, one_port: bool,
    advertise: Advertised | None, scaling_windows: tuple[float, float, float, float], scaling_cool_down: float,
    retention_interval: float, watermark_interval: float, allow_damaged: bool, accept_data_loss: bool, log_level: str,
    log_format: str, security: SecurityConfig, traces: TraceSettings | None,
) -> None:  # fmt: skip
    """Run controller and segment store on one data directory.

    Prints a line with "sarit is ready" when it serves, and the URL of its console.  SIGTERM and Ctrl-C flush and stop;
    a second one, at least a second later, does not wait for the flush.  Acknowledged data is always on disk, so kill -9
    loses nothing.
    """
    require("node", "`sarit standalone`")
    from sarit.process.settings import NodeConfig, default_processes

    processes = processes or default_processes(os.cpu_count() or 1, containers)
    config = NodeConfig(
        data_dir=str(data_dir),
        host=host,
        controller_port=controller_port,
        store_port=store_port,
        containers=containers,
        storage_url=storage,
        index_url=index_storage,
        log_url=log,
        memory_bytes=memory,
        allow_damaged=allow_damaged,
        accept_data_loss=accept_data_loss,
        scrub_bytes_per_second=scrub,
        processes=processes,
        one_port=one_port,
        advertised=advertise,
        http_port=http_port_of(http_port),
        registry=registry_of(registry, registry_port),
        catalogs=None if catalogs is None else str(catalogs.absolute()),
        jobs=jobs == "on",
        times=times_of(scaling_windows, scaling_cool_down, retention_interval, watermark_interval),
        options=shown_options(),
        security=security,
        traces=traces,
    )
    config = with_profile(config, profile)
    if is_check():
        config.check()
        return
    start_logs(log_level, log_format)
    with dev_settings(config, click.get_current_context()) if dev else nullcontext(config) as config:
        _run(config)


def _run(config: NodeConfig) -> None:
    if config.processes == 1:
        from sarit.process.standalone import run
    else:
        from sarit.process.supervisor import run
    run(config, reload_of(config.options))
