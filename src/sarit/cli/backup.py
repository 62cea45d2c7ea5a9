"""`sarit backup` and `sarit restore`."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.limits import MAX_BACKUP_WAIT_SECONDS
from sarit.cli.option_types import CLUSTER_URL, STORAGE_URL, Memory, Name
from sarit.cli.options import Commands, count_of, format_option, show
from sarit.cli.process_options import zookeeper_option
from sarit.cli.progress import Bar
from sarit.core.extras import require
from sarit.ops.limits import BACKUP_WAIT_SECONDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from typing import TypeVar

    from sarit.env.ports import Env
    from sarit.ops.backup.manifest import Manifest
    from sarit.ops.backup.place import Place

    T = TypeVar("T")

_DAMAGED, _FAILED = 1, 2
_MS_PER_SECOND = 1000

_place_argument = click.argument("place", metavar="BACKUP")
_rate_option = click.option(
    "--rate",
    type=Memory(),
    metavar="SIZE",
    default="0",
    help="Bytes to copy in a second at most, as 20M.  [default: 0: no limit]",
)
_cluster_url_option = click.option(
    "--cluster", type=CLUSTER_URL, metavar="URL", help="zookeeper://HOST:PORT,HOST:PORT/NAME, instead of --data-dir."
)
_machine_option = click.option(
    "--machine",
    type=Name(),
    default=socket.gethostname,
    metavar="NAME",
    help="This machine, for a cluster in directories of one.  [default: the host name]",
)
_work_option = click.option(
    "--work",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default="sarit-backup-work",
    show_default=True,
    help="For copies of a cluster's indexes, meanwhile.",
)


@click.group(cls=Commands)
def backup() -> None:
    """Back up a running node; list, verify and prune its backups.

    BACKUP is a directory or s3://BUCKET/PREFIX of its own, for one node.  For S3 set the usual environment variables.
    """


@backup.command()
@_place_argument
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="The data directory of a node.")
@_cluster_url_option
@zookeeper_option
@_machine_option
@_work_option
@_rate_option
@click.option(
    "--wait",
    type=click.FloatRange(0, MAX_BACKUP_WAIT_SECONDS),
    default=BACKUP_WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to keep trying while stores, ZooKeeper or storage are away.",
)
@format_option
def create(
    place: str, data_dir: Path | None, cluster: str | None, machine: str, work: Path, rate: int, wait: float,
    output: str,
) -> None:  # fmt: skip
    """Back up the node that runs on a data directory, or a cluster, as of one moment.

    Chunks that BACKUP has already are not copied again.  A backup that was interrupted is not listed; the next one goes
    on with what it has copied.
    """
    from sarit.ops.backup.create import create as make
    from sarit.ops.backup.create import create_from

    _one_of(data_dir, cluster)
    path = None if data_dir is None else str(data_dir.absolute())
    folder = str(work.absolute())
    began = _monotonic()

    async def back_up(env: Env, bar: Bar) -> Manifest:
        if path is not None:
            return await make(env, path, place, rate, bar, wait)
        from sarit.cluster.settings import parse_cluster
        from sarit.ops.backup.cluster import describe_cluster

        source = await describe_cluster(env, parse_cluster(str(cluster)), machine, folder, _advice_on_tls())
        return await create_from(env, source, place, rate, bar, wait)

    manifest = _run(back_up, "no backup was made; the same command goes on with what was copied")
    seconds = _monotonic() - began
    text = (
        f"backup {manifest.number} is complete: {manifest.total_bytes:,} bytes, {manifest.copied_bytes:,} of them "
        f"copied now, in {seconds:.1f} s"
    )
    show(output, _as_json(manifest) | {"seconds": round(seconds, 3)}, text)


@backup.command("list")
@_place_argument
@format_option
def list_backups(place: str, output: str) -> None:
    """List the backups in a place, oldest first."""
    from sarit.ops.backup.check import read_manifests

    async def work(env: Env, bar: Bar) -> list[Manifest]:
        async with _opened(env, place) as found:
            return await read_manifests(found)

    manifests = _run(work)
    rows = [
        f"{each.number:6}  {_time_of(each)}  {each.total_bytes:>18,} bytes  {each.copied_bytes:>18,} new"
        for each in manifests
    ]
    show(output, [_as_json(each) for each in manifests], "\n".join(rows) or "no backup is complete")


@backup.command()
@_place_argument
@_rate_option
@format_option
def verify(place: str, rate: int, output: str) -> None:
    """Read everything that the backups in a place consist of, and compare it with its checksums.

    Exit codes: 0 everything is whole, 1 something is damaged, 2 the check could not run.
    """
    from sarit.core.errors import SaritError
    from sarit.ops.backup.check import CheckReport, verify_place
    from sarit.ops.backup.pacer import Pacer

    async def work(env: Env, bar: Bar) -> CheckReport:
        async with _opened(env, place) as found:
            return await verify_place(found, Pacer(env.clock, rate), bar)

    try:
        report = _run(work)
    except (SaritError, OSError) as error:
        click.echo(f"sarit: {place} cannot be checked: {error}", err=True)
        sys.exit(_FAILED)
    summary = f"{count_of(report.backups, 'backup')}, {count_of(report.objects, 'object')}, {report.bytes:,} bytes: "
    text = "\n".join([*report.damaged, summary + (f"{len(report.damaged)} damaged" if report.damaged else "all whole")])
    value = {
        "backups": report.backups, "objects": report.objects, "bytes": report.bytes, "damaged": report.damaged,
    }  # fmt: skip
    show(output, value, text)
    sys.exit(_DAMAGED if report.damaged else 0)


@backup.command()
@_place_argument
@click.option("--keep", type=click.IntRange(1), required=True, metavar="N", help="How many of the newest stay.")
@click.option("--force", is_flag=True, help="Although a backup or a prune seems to run: it is known to be dead.")
@format_option
def prune(place: str, keep: int, force: bool, output: str) -> None:
    """Delete all backups but the newest, and what only they need."""
    from sarit.ops.backup.check import Pruned
    from sarit.ops.backup.check import prune as drop

    async def work(env: Env, bar: Bar) -> Pruned:
        async with _opened(env, place) as found:
            return await drop(found, keep, force=force)

    done = _run(work)
    value = {"backups": done.backups, "objects": done.objects, "bytes": done.bytes}
    text = f"deleted {count_of(len(done.backups), 'backup')}: {count_of(done.objects, 'object')}, {done.bytes:,} bytes"
    show(output, value, text)


@click.command()
@_place_argument
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="The data directory of a new node.")
@_cluster_url_option
@zookeeper_option
@_machine_option
@_work_option
@click.option("--backup", "number", type=click.IntRange(1), metavar="N", help="Which one.  [default: the newest]")
@click.option(
    "--storage", type=STORAGE_URL, metavar="URL", help="Long-term storage of the new node.  [default: in DIR]"
)
@_rate_option
@format_option
def restore(
    place: str, data_dir: Path | None, cluster: str | None, machine: str, work: Path, number: int | None,
    storage: str | None, rate: int, output: str,
) -> None:  # fmt: skip
    """Make a new node of a backup, in a directory that does not exist yet; or fill a new cluster.

    The new node has an id of its own and cannot use the storage of the old one.  Start it with `sarit standalone` and
    the --containers of the old one.  A cluster is made by `sarit cluster init` with as many --containers before; start
    its stores afterwards.  A restore that was interrupted goes on when the command is given again.
    """
    require("node", "`sarit restore`")
    from sarit.core.errors import Invalid
    from sarit.ops.backup.pacer import Pacer
    from sarit.ops.backup.restore import restore as make

    _one_of(data_dir, cluster)
    if cluster is not None and storage is not None:
        raise click.UsageError("--storage is for a node: a cluster has its own")
    path = "" if data_dir is None else str(data_dir.absolute())
    folder = str(work.absolute())

    async def fill(env: Env, bar: Bar) -> tuple[Manifest, str]:
        async with _opened(env, place) as found:
            await found.require()
            numbers = await found.numbers()
            if not numbers:
                raise Invalid(f"no backup at {place} is complete")
            manifest = await found.manifest(number or numbers[-1])
            pacer = Pacer(env.clock, rate)
            if cluster is None:
                return manifest, await make(env, found, manifest, path, storage, pacer, bar)
            from sarit.cluster.settings import parse_cluster
            from sarit.ops.backup.restore_cluster import restore_cluster

            address = parse_cluster(cluster)
            return manifest, await restore_cluster(env, found, manifest, address, machine, folder, pacer, bar)

    manifest, node = _run(fill, "the restore is not complete; the same command goes on where it was")
    if cluster is not None:
        text = f"backup {manifest.number} of {_time_of(manifest)} is in the cluster {cluster}: start its processes"
        show(output, _as_json(manifest) | {"cluster": node}, text)
        return
    text = (
        f"backup {manifest.number} of {_time_of(manifest)} is restored as node {node}: start it with\n"
        f"sarit standalone --data-dir {data_dir}" + (f" --storage {storage}" if storage else "")
        + (f" --containers {len(manifest.containers)}" if len(manifest.containers) != _CONTAINERS else "")
    )  # fmt: skip
    show(output, _as_json(manifest) | {"node": node, "data_dir": path}, text)


_CONTAINERS = 4  # the default of `sarit standalone`


def _run(work: Any, interrupted: str = "") -> Any:
    """Run `work(env, bar)` on an event loop.  `interrupted`: what to say after Ctrl-C."""
    from sarit.client.core.login import default_tls
    from sarit.env.real import real_env

    bar = Bar()
    tls = default_tls("")

    def use() -> ssl.SSLContext:
        assert tls is not None
        context = tls.context()
        # Stores are reached at addresses that no certificate has; who they are, the CA and the secret say.
        context.check_hostname = False
        return context

    async def main() -> Any:
        return await work(real_env(client_tls=None if tls is None else use), bar)

    try:
        return asyncio.run(main())
    except KeyboardInterrupt:
        bar.end()
        if interrupted:
            click.echo(f"sarit: {interrupted}", err=True)
        raise click.Abort from None
    finally:
        bar.end()


def _advice_on_tls() -> str:
    """Return advice on what may be wrong if a store of a cluster closes the connection."""
    from sarit.client.core.login import default_tls

    tls = default_tls("")
    if tls is None:
        return "if the cluster has TLS, name its CA with SARIT_CA_FILE"
    if tls.cert_file is None:
        return "if its stores ask for certificates, name one with SARIT_CERT_FILE and SARIT_KEY_FILE"
    return ""


def _one_of(data_dir: Path | None, cluster: str | None) -> None:
    if (data_dir is None) == (cluster is None):
        raise click.UsageError("give --data-dir DIR of a node, or --cluster URL of a cluster")


def _monotonic() -> float:
    from sarit.env.real import real_env

    return real_env().clock.monotonic()


@asynccontextmanager
async def _opened(env: Env, name: str) -> AsyncIterator[Place]:
    from sarit.ops.backup.place import open_place

    place = await open_place(env, name)
    try:
        yield place
    finally:
        await place.close()


def _time_of(manifest: Manifest) -> str:
    return datetime.fromtimestamp(manifest.moment_ms / _MS_PER_SECOND, UTC).isoformat(timespec="seconds")


def _as_json(manifest: Manifest) -> dict[str, object]:
    return {
        "backup": manifest.number,
        "node": manifest.node,
        "time": _time_of(manifest),
        "frames": [container.frame for container in manifest.containers],
        "bytes": manifest.total_bytes,
        "copied_bytes": manifest.copied_bytes,
    }
