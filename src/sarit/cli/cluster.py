"""`sarit cluster`: make a cluster, see it, drain a store of it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TypeVar

import click

from sarit.cli.configured_commands import Configured
from sarit.cli.option_types import CLUSTER_INDEX_URL, CLUSTER_LOG_URL, CLUSTER_STORAGE_URL
from sarit.cli.options import Commands, count_of, format_option, show, show_fields, show_rows
from sarit.cli.process_options import cluster_option, config_option, machine_option
from sarit.coordination.limits import MAX_CONTAINERS, STORE_LEASE_SECONDS
from sarit.core.extras import require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sarit.cluster.object_requests import Counts
    from sarit.cluster.status import ClusterStatus, ClusterView
    from sarit.cluster.verdict import Verdict

    Rows = Sequence[Mapping[str, object]]

T = TypeVar("T")

NOT_SERVED: Final = 3  # the exit code of `sarit cluster status`; 1 and 2 are of commands that failed
_LEFT_OUT_EMPTY: Final = ("reasons", "requests", "workers")

_ALL_STORES: Final = "all"
_REQUEST_COLUMNS: Final = (
    "store", "seconds", "puts of chunks", "puts of index", "gets of chunks", "gets of index", "dollars a day",
)  # fmt: skip


@click.group(cls=Commands)
def cluster() -> None:
    """Make a cluster; print its members and containers; drain a store."""


@cluster.command(cls=Configured)
@config_option
@cluster_option
@click.option(
    "--containers",
    type=click.IntRange(1, MAX_CONTAINERS),
    default=16,
    show_default=True,
    help="Partitions of the segments, each with a log of its own: several for each store there will ever be; fixed.",
)
@click.option(
    "--log",
    type=CLUSTER_LOG_URL,
    required=True,
    metavar="URL",
    help="The durable log: bookkeeper://ZK:PORT/ledgers, or file:///DIR, which the stores of one machine share.",
)
@click.option(
    "--index",
    type=CLUSTER_INDEX_URL,
    metavar="URL",
    help="The index: file:///DIR or s3://BUCKET/PREFIX.  [default: the directory `index` beside that of the log, or "
    "with long-term storage]",
)
@click.option(
    "--storage",
    type=CLUSTER_STORAGE_URL,
    required=True,
    metavar="URL",
    help="Long-term storage: file:///DIR or s3://BUCKET/PREFIX.",
)
@click.option(
    "--lease",
    type=float,
    default=STORE_LEASE_SECONDS,
    show_default=True,
    help="Seconds after which a store that is not heard of is gone, 4 to 30.",
)
@machine_option
def init(cluster: str, containers: int, log: str, index: str | None, storage: str, lease: float, machine: str) -> None:
    """Make a new cluster: write what all its processes share, once.  Then start stores and controllers."""
    require("cluster", "`sarit cluster`")
    from sarit.cluster.creation import init_cluster
    from sarit.cluster.places import default_index, open_cluster_logs
    from sarit.cluster.settings import ClusterMeta, parse_cluster
    from sarit.env.real import real_env
    from sarit.storage.open import open_storage

    address = parse_cluster(cluster)
    index = index or default_index(log, storage)
    asked = ClusterMeta("", "", containers, log, index, storage, machine, lease).checked()

    async def make(view: ClusterView) -> None:
        env = real_env()
        async with AsyncExitStack() as closing:
            # Before anything is written: is it there?
            await open_cluster_logs(closing, asked, env, 0)
            chunks = await open_storage(storage, env)
            closing.push_async_callback(chunks.close)
            made = await init_cluster(view.registers, env, asked, chunks)
        click.echo(f"cluster {address.name} is made: {count_of(containers, 'container')}, id {made.cluster}")

    _run(cluster, make)


@cluster.command()
@config_option
@cluster_option
@format_option
def status(cluster: str, output: str) -> None:
    """Print whether the cluster serves and why not, its stores, its controllers, and the state of each container.

    Ends with code 3 when anything of the cluster is not served, or is not known to be.  With chunks or index on S3 also
    the requests of each store in the last 5 minutes, and what as many cost in a day at the prices of S3 Standard: PUTs
    (and lists) $5 a million, GETs $0.40 a million.
    """
    from sarit.cluster.verdict import FAILED

    async def read(view: ClusterView) -> ClusterStatus:
        return await view.status(with_reports=True)

    found = _run(cluster, read)
    verdict = found.verdict()
    tables = _tables(found, verdict)
    about = _about(found, verdict)
    if output == "json":
        show(output, {**about, **{name: rows for name, rows, _ in tables}}, "")
    else:
        show_fields(output, {**about, "served": f"{verdict.served} of {found.meta.containers} containers"})
        for name, rows, columns in tables:
            if rows or name not in _LEFT_OUT_EMPTY:
                click.echo()
                shown = [{key: "-" if value is None else value for key, value in row.items()} for row in rows]
                show_rows(output, shown, columns)
    if verdict.state == FAILED:
        sys.exit(NOT_SERVED)


def _about(found: ClusterStatus, verdict: Verdict) -> dict[str, object]:
    meta, record = found.meta, found.map
    return {
        "cluster": meta.cluster, "health": verdict.state, "served": verdict.served, "log": meta.log,
        "index": meta.index, "storage": meta.storage, "lease": meta.lease_seconds,
        "map": record.version if record is not None else 0,
    }  # fmt: skip


def _tables(found: ClusterStatus, verdict: Verdict) -> list[tuple[str, Rows, Sequence[str]]]:
    """Return what is printed below the description: names, rows and columns."""
    record = found.map
    stores = [
        {
            "store": name,
            "address": f"{store.host}:{store.port}",
            "machine": store.machine,
            "weight": store.weight,
            "state": "leaving" if store.leaving else "drained" if not store.weight else "up",
            "containers": len(found.containers_of(name)),
            "reported": None if (age := verdict.ages.get(name)) is None else f"{age:.0f} s ago",
        }
        for name, store in sorted(found.stores.items())
    ]
    containers = [
        {
            "container": number,
            "store": (record.serving(number) if record is not None else None) or "-",
            "state": verdict.containers[number] if number < len(verdict.containers) else "-",
            "moving to": (record.owners[number] or "nobody yet") if record and number in record.moving else "-",
        }
        for number in range(found.meta.containers)
    ]
    reasons = [
        {"reason": one.code, "part": one.part, "served": "yes" if one.ready else "no", "text": one.text}
        for one in verdict.reasons
    ]
    return [
        ("reasons", reasons, ["reason", "part", "served", "text"]),
        ("components", [asdict(one) for one in verdict.components], ["name", "state", "text"]),
        ("stores", stores, ["store", "address", "machine", "weight", "state", "containers", "reported"]),
        ("controllers", [{"controller": f"{host}:{port}"} for host, port in found.controllers], ["controller"]),
        ("workers", [{"worker": f"{host}:{port}"} for host, port in found.workers], ["worker"]),
        ("containers", containers, ["container", "store", "state", "moving to"]),
        ("requests", _requests(found), _REQUEST_COLUMNS),
    ]


def _requests(found: ClusterStatus) -> list[dict[str, object]]:
    """Return rows of requests to object storage for each store and for all: none without an object store."""
    from sarit.cluster.object_requests import Counts, on_object_store

    if not on_object_store(found.meta):
        return []
    rows, counts, dollars = list[dict[str, object]](), Counts(), 0.0
    for name, report in sorted(found.requests.items()):
        if report is None:
            rows.append({"store": name} | dict.fromkeys(_REQUEST_COLUMNS[1:]))
            continue
        rows.append(_request_row(name, round(report.seconds), report.counts, report.dollars_a_day()))
        counts, dollars = counts.plus(report.counts), dollars + report.dollars_a_day()
    return [*rows, _request_row(_ALL_STORES, None, counts, dollars)]


def _request_row(store: str, seconds: int | None, counts: Counts, dollars: float) -> dict[str, object]:
    return {
        "store": store, "seconds": seconds, "puts of chunks": counts.chunk_puts, "puts of index": counts.index_puts,
        "gets of chunks": counts.chunk_gets, "gets of index": counts.index_gets, "dollars a day": round(dollars, 2),
    }  # fmt: skip


@cluster.command()
@click.argument("store")
@click.option("--undo", is_flag=True, help="Let STORE have containers again.")
@config_option
@cluster_option
@format_option
def drain(store: str, undo: bool, cluster: str, output: str) -> None:
    """Move all containers away from STORE, and give it none until --undo; it stays a member.  Waits for the end."""

    async def work(view: ClusterView) -> None:
        if undo:
            await view.undrain(store)
            show(output, {"store": store, "drained": False}, f"{store} may have containers again")
            return
        await view.drain(store, lambda left: click.echo(f"{count_of(left, 'container')} left", err=True))
        show(output, {"store": store, "drained": True}, f"{store} has no containers")

    try:
        _run(cluster, work)
    except KeyboardInterrupt:
        if not undo:
            click.echo(f"{store} stays drained, its containers move on: --undo ends that", err=True)
        raise


def _run(url: str, work: Callable[[ClusterView], Awaitable[T]]) -> T:
    require("cluster", "`sarit cluster`")
    from sarit.cluster.settings import parse_cluster
    from sarit.cluster.status import view_cluster
    from sarit.env.real import real_env

    async def main() -> T:
        async with view_cluster(parse_cluster(url), real_env()) as view:
            return await work(view)

    return asyncio.run(main())
