"""What `sarit doctor` examines: whether a node or a process of a cluster would start here, and serve well.

Each check gives findings.  Nothing of a running node is touched: a check writes at most a probe of its own, and deletes
it.  Checks of servers that do not answer end after DOCTOR_SECONDS.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import os
import socket
import ssl
import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import UNAUTHORIZED, HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final

from sarit.cluster.bookie_settings import ask_settings, bookies_with
from sarit.cluster.limits import CLOCK_WARNING_SECONDS, DOCTOR_SECONDS
from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import MIB
from sarit.env.own_directory import require_own_directory
from sarit.ops.limits import DOCTOR_SYNCS, SLOW_SYNC_SECONDS, USUAL_DESCRIPTORS
from sarit.process.addresses import EVERY_ADDRESS, bound_address, is_loopback, refuse_plain_passwords
from sarit.process.ownership.directory_content import is_data_directory
from sarit.process.settings import node_ports
from sarit.store.flow_control.free_space import log_file_bytes, require_space, reserve_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.cluster.bookie_settings import BookieSettings
    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.env.ports import Env
    from sarit.process.settings import NodeConfig

OK: Final = "OK"
WARN: Final = "WARN"
FAIL: Final = "FAIL"

# What listens at a port.
WIRE: Final = "wire"
GRPC: Final = "gRPC"
HTTP: Final = "HTTP"
_PROTOCOLS: Final = {"--controller-port": GRPC, "--store-port": WIRE, "--http-port": HTTP, "--registry-port": HTTP}

_HELLO: Final = bytes.fromhex("ffffff81 00000008 00000011 00000005")
_HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
_SETTINGS: Final = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """`level`: OK, WARN or FAIL.  `advice`: what to do; empty: nothing."""

    check: str
    level: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """A port that the process listens on, the option that chose it, and its protocol."""

    option: str
    number: int
    protocol: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of an examination.  `config`: of the node; of a cluster's process, its host, ports and memory.

    `cluster`: None for a node of its own.  `tls`: certificate and key of the process, None without TLS."""

    config: NodeConfig
    ports: Sequence[Port]
    cluster: ClusterAddress | None = None
    tls: tuple[str, str] | None = None


def ports_of(config: NodeConfig) -> list[Port]:
    """Return the ports of a node of its own.  Port 0 is free by definition."""
    return [Port(option, number, _PROTOCOLS[option]) for option, number in node_ports(config) if number]


async def examine(plan: Plan, env: Env) -> AsyncIterator[Finding]:
    """Yield all findings, in order."""
    from sarit.env.real_limits import machine_memory, raise_descriptor_limit

    config = plan.config
    yield check_descriptors(config, raise_descriptor_limit())
    yield check_memory(config, machine_memory())
    meta: ClusterMeta | None = None
    if plan.cluster is not None:
        finding, meta = await _check_cluster(plan.cluster, env)
        yield finding
    directory = config.data_dir if plan.cluster is None else None if meta is None else meta.log_directory
    if directory is not None:
        for finding in check_directory(directory, config, env):
            yield finding
    for port in plan.ports:
        yield check_port(config.host, port, plan.tls)
    yield check_advertised(config.host, config.advertised.host if config.advertised is not None else None)
    yield check_log_ins(config)
    storage, index, log = (
        (config.storage_url, config.index_url, config.log_url)
        if meta is None
        else (meta.storage, meta.index, meta.log if meta.log_directory is None else None)
    )
    if storage is not None:
        yield await check_storage("long-term storage", storage, env)
    if index is not None and index.startswith("s3:"):
        yield await check_storage("index storage", index, env)
    if log is not None:
        for finding in await check_bookkeeper(log, env):
            yield finding


# -- of the machine -----------------------------------------------------------------------------


def check_descriptors(config: NodeConfig, allowed: int) -> Finding:
    """Check the limit on open files.  `allowed`: how many the process may open."""
    try:
        within = config.within(allowed)
    except Invalid as error:
        return Finding("open files", FAIL, str(error), "raise it: ulimit -n 65536, or LimitNOFILE= in the service file")
    text = f"{allowed:,} may be open: {within.max_connections:,} connections to the store"
    if allowed < USUAL_DESCRIPTORS:
        return Finding("open files", WARN, text, f"raise it to {USUAL_DESCRIPTORS:,} for many clients (ulimit -n)")
    return Finding("open files", OK, text)


def check_memory(config: NodeConfig, machine_bytes: int) -> Finding:
    """Check the memory.  `machine_bytes`: the bytes that this process may use."""
    try:
        if config.processes > 1:
            found = config.divided(machine_bytes, 1 << 20)[0].memory_bytes
        else:
            found = config.on_machine(machine_bytes).memory_bytes
    except Invalid as error:
        return Finding("memory", FAIL, str(error), "choose another --memory")
    return Finding("memory", OK, f"{(found or 0) // MIB:,} MiB of {machine_bytes // MIB:,} MiB")


def check_directory(directory: str, config: NodeConfig, env: Env) -> list[Finding]:
    """Check the volume of a data directory: its space, and how long a sync takes."""
    files, there = env.files, directory
    try:
        if directory == config.data_dir:  # the log of a cluster is marked, and examined with the cluster
            require_own_directory(files, directory, is_data_directory)
    except (Invalid, OSError) as error:
        return [Finding("data directory", FAIL, str(error), "choose another --data-dir")]
    while not files.exists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    try:
        free, volume = files.free_bytes(there), files.volume_bytes(there)
    except OSError as error:
        return [Finding("disk space", FAIL, f"{there}: {error}", "choose another --data-dir")]
    return [_check_space(directory, free, volume, config, new=not files.exists(f"{directory}/meta")),
            _check_sync(there, env)]  # fmt: skip


def _check_space(directory: str, free: int, volume: int, config: NodeConfig, *, new: bool) -> Finding:
    limits = config.limits
    size = min(limits.log_file_bytes, log_file_bytes(volume, config.containers))
    reserve = reserve_bytes(config.containers, size, limits.disk_reserve_bytes)
    text = f"{directory}: {free // MIB:,} MiB free of {volume // MIB:,} MiB, {reserve // MIB:,} MiB stay free"
    if new:
        try:
            require_space(directory, free, config.containers, size, limits.disk_reserve_bytes)
        except Invalid as error:
            return Finding("disk space", FAIL, str(error), "free some space, or choose a larger volume")
    if free < reserve:
        return Finding("disk space", FAIL, f"{text}: appends would wait", "free some space")
    if free < 2 * reserve:
        return Finding("disk space", WARN, text, "free some space, or have a larger volume soon")
    return Finding("disk space", OK, text)


def _check_sync(directory: str, env: Env) -> Finding:
    path = f"{directory}/.sarit-doctor-{env.random.bytes(8).hex()}"
    clock, files, took = env.clock, env.files, []
    try:
        file = files.open(path, "create")
        try:
            for number in range(DOCTOR_SYNCS):
                began = clock.monotonic()
                file.pwrite([bytes(4096)], 4096 * number)
                file.datasync()
                took.append(clock.monotonic() - began)
        finally:
            file.close()
            files.remove(path)
    except OSError as error:
        return Finding("disk sync", FAIL, f"{directory} cannot be written: {error}", "let this user write there")
    median, slowest = statistics.median(took), max(took)
    text = (
        f"4 KiB are durable after {median * 1000:.2f} ms, the slowest of {DOCTOR_SYNCS} after {slowest * 1000:.1f} ms"
    )
    if median > SLOW_SYNC_SECONDS:
        return Finding("disk sync", WARN, text, "every acknowledgement waits for one: use a faster disk for the log")
    return Finding("disk sync", OK, text)


# -- the network --------------------------------------------------------------------------------


def check_port(host: str, port: Port, tls: tuple[str, str] | None = None) -> Finding:
    """Check whether a port is free, and who has it if not."""
    check = f"port {port.number}"
    try:
        address = bound_address(host)
    except Invalid as error:
        return Finding(check, FAIL, str(error), "choose another --host")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, port.number), family=family).close()
        return Finding(check, OK, f"free ({port.option})")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return Finding(
                check, FAIL, f"{address}: {error.strerror or error} ({port.option})", "choose another host or port"
            )
    try:
        who = _ask("127.0.0.1" if address in EVERY_ADDRESS else address, port, tls)
    except TimeoutError:
        text = f"taken by something that takes connections and says nothing for {DOCTOR_SECONDS:g} s ({port.option})"
        advice = (
            "a Sarit that is overloaded or hangs, or another program (ss -ltnp names it): look at its log; stop it, "
        )
        return Finding(check, FAIL, text, f"{advice}or choose another {port.option}")
    if who:
        return Finding(check, OK, f"answered by Sarit: {who} ({port.option})")
    advice = f"stop that process, or choose another {port.option} (ss -ltnp names it)"
    return Finding(check, FAIL, f"taken by something that is no Sarit ({port.option})", advice)


def _ask(host: str, port: Port, tls: tuple[str, str] | None) -> str:
    """Return which part of Sarit answers at an address; empty: none.  Raises TimeoutError when nothing answers."""
    try:
        context = None if tls is None else _of_any_server(*tls)
        if port.protocol == HTTP:
            return _ask_http(host, port.number, context)
        return _ask_binary(host, port, context)
    except TimeoutError:
        raise
    except (OSError, HTTPException, ValueError):
        return ""


def _ask_binary(host: str, port: Port, context: ssl.SSLContext | None) -> str:
    """Return which part of Sarit answers a first message; empty: none.  Raises OSError, TimeoutError."""
    hello = _HELLO if port.protocol == WIRE else _HTTP2
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port.number), DOCTOR_SECONDS))
        if context is not None:
            context.set_alpn_protocols(["h2"] if port.protocol == GRPC else [])
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
        connection.sendall(hello)
        answer = connection.recv(64)
    if port.protocol == WIRE and answer.startswith(_HELLO[:8]):
        return "a store"
    if port.protocol == GRPC and len(answer) > 3 and answer[3] == _SETTINGS:
        return "a controller"
    return ""


def _ask_http(host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Return what an HTTP port of Sarit says of its process.  Raises OSError, HTTPException, ValueError for others."""
    http = (
        HTTPConnection(host, port, timeout=DOCTOR_SECONDS)
        if context is None
        else HTTPSConnection(host, port, timeout=DOCTOR_SECONDS, context=context)
    )
    try:
        http.request("GET", "/healthz")
        answer = http.getresponse()
        found = json.loads(answer.read())
        if answer.status == UNAUTHORIZED:  # the process has users, but anybody may ask whether it is ready
            http.request("GET", "/readyz")
            return f"a process with users, {json.loads(http.getresponse().read())['status']}"
        return f"{found['name']}, version {found['version']}, {found['state']}"
    except (KeyError, TypeError):
        return ""
    finally:
        http.close()


def _of_any_server(certificate: str, key: str) -> ssl.SSLContext:
    """Return a TLS context that verifies no server, for asking who has a port: nothing secret is sent.

    Raises OSError when a file cannot be used."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    return context


def check_advertised(host: str, advertised: str | None) -> Finding:
    """Check whether clients can use the address that they get."""
    check = "advertised address"
    if host in EVERY_ADDRESS and not advertised:
        text = f"--host {host or '*'} without --advertise: clients get 127.0.0.1"
        return Finding(check, WARN, text, "name the address that others use with --advertise, and mapped ports")
    name = advertised or host
    try:
        address = bound_address(name)
    except Invalid as error:
        return Finding(check, FAIL, str(error), "choose a name that clients can resolve")
    text = name if name == address else f"{name}, which is {address} here"
    if ipaddress.ip_address(address).is_loopback:
        if host not in ("localhost", address) and not host.startswith("127."):
            return Finding(
                check, WARN, f"{text}: other machines cannot reach it", "advertise an address of the network"
            )
        return Finding(check, OK, f"{text}: clients of this machine alone")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, 0), family=family).close()
    except OSError:
        advice = "right for NAT and load balancers; else choose an address of this machine"
        return Finding(check, WARN, f"{text}, which is no address of this machine", advice)
    return Finding(check, OK, text)


def check_log_ins(config: NodeConfig) -> Finding:
    """Check whether clients must log in, and whether others can read what they send."""
    check, security = "log-ins", config.security
    try:
        here = is_loopback(config.host)
        refuse_plain_passwords(config)
    except Invalid as error:
        return Finding(check, FAIL, str(error), "choose another --host, or give --tls-cert and --tls-key")
    if here:
        return Finding(check, OK, "clients of this machine alone")
    if security.token_keys is None:
        text = "without --users whoever reaches the ports may read, change and delete everything"
        return Finding(check, WARN, text, "see docs/operations/security.md")
    if security.certificate is None:
        text = "passwords and tokens cross the network in clear text (--plain-passwords)"
        return Finding(check, WARN, text, "give --tls-cert and --tls-key, unless something in front or below encrypts")
    return Finding(check, OK, "with users, over TLS")


# -- other services -----------------------------------------------------------------------------


async def check_storage(check: str, url: str, env: Env) -> Finding:
    """Write, read, list and delete a probe."""
    from sarit.storage.open import open_storage

    folder = "doctor"
    name, data = f"{folder}/{env.random.bytes(8).hex()}", b"a probe of sarit doctor"
    step = "open"
    try:
        async with asyncio.timeout(4 * DOCTOR_SECONDS):
            storage = await open_storage(url, env)
            try:
                step = "write"
                await storage.write(name, [data])
                step = "read"
                if bytes(await storage.read(name, 0, len(data))) != data:
                    return Finding(check, FAIL, f"{url}: it returns other bytes than were written", "check the storage")
                step = "list"
                listed = name in [found async for found, _ in storage.list(folder)]
                step = "delete"
                await storage.delete(name)
            finally:
                await storage.close()
    except (SaritError, OSError) as error:
        return Finding(check, FAIL, f"{url}: {step}: {error}", f"allow this user to {step} there, or see the error")
    except TimeoutError:
        return Finding(check, FAIL, f"{url}: {step}: no answer within {4 * DOCTOR_SECONDS:g} s", "check its endpoint")
    if not listed:
        return Finding(check, FAIL, f"{url}: a listing misses what was written", "allow this user to list there")
    return Finding(check, OK, f"{url}: writes, reads, lists, deletes")


async def check_bookkeeper(url: str, env: Env) -> list[Finding]:
    """Check whether enough bookies are registered."""
    from sarit.coordination.zookeeper import ZooKeeper
    from sarit.log.bookkeeper.bookies import NetworkBookies
    from sarit.log.bookkeeper.ledger_store import ZooKeeperLedgers
    from sarit.process.limits import LOG_SESSION_SECONDS
    from sarit.process.places.bookkeeper_logs import parse_log_url

    check = "BookKeeper"
    try:
        place = parse_log_url(url)
        zookeeper = await ZooKeeper.connect(place.hosts, LOG_SESSION_SECONDS, env)
        try:
            await ZooKeeperLedgers(zookeeper, place.root).check_layout()
            bookies = NetworkBookies(env, zookeeper, place.root)
            await bookies.start()
            writable, read_only = len(bookies.writable()), len(bookies.read_only())
            said = await ask_settings(zookeeper, place.root, sorted(bookies.writable()), env)
            await bookies.close()
        finally:
            await zookeeper.close()
    except (SaritError, OSError) as error:
        return [Finding(check, FAIL, str(error), "start ZooKeeper and BookKeeper, or correct --log")]
    settings = place.settings
    text = f"{writable} bookies can be written, {read_only} are read-only; an ensemble has {settings.ensemble_size}"
    found = Finding(check, OK, text)
    if writable < settings.ack_quorum:
        found = Finding(check, FAIL, f"{text}, an acknowledgement needs {settings.ack_quorum}", "start more bookies")
    elif writable < settings.ensemble_size:
        found = Finding(check, WARN, text, "start more bookies: a ledger cannot have its whole ensemble")
    return [found, check_journals(said), *check_auto_recovery(said)]


def check_journals(bookies: Sequence[BookieSettings]) -> Finding:
    """Return whether bookies acknowledge what is on their disks: each with what its configuration sets, or None."""
    check = "journals of bookies"
    wrong = [
        f"{name} ({key}=false)"
        for key in ("journalSyncData", "journalWriteData")
        for name in bookies_with(bookies, key, "false")
    ]
    if wrong:
        text = f"they acknowledge what is in memory alone: {', '.join(wrong)}"
        return Finding(check, FAIL, text, "set it to true, its default: a loss of power loses acknowledged events")
    silent = [bookie for bookie, values in bookies if values is None]
    if silent:
        advice = "see that journalSyncData and journalWriteData are not false there, or set httpServerEnabled=true and "
        advice += "httpServerClass (docs/cluster.md)"
        return Finding(check, WARN, f"these do not say whether they sync: {', '.join(silent)}", advice)
    return Finding(check, OK, f"{len(bookies)} bookies sync before they acknowledge")


def check_auto_recovery(bookies: Sequence[BookieSettings]) -> list[Finding]:
    """Return a warning of bookies that end when ZooKeeper is away: BookKeeper's auto recovery runs inside them."""
    inside = bookies_with(bookies, "autoRecoveryDaemonEnabled", "true")
    if not inside:
        return []
    text = f"these end 15 s after ZooKeeper, and all writes with them: {', '.join(inside)}"
    advice = "set autoRecoveryDaemonEnabled=false there, and run `bookkeeper autorecovery` as a process of its own"
    return [Finding("auto recovery of bookies", WARN, text, advice)]


async def _check_cluster(cluster: ClusterAddress, env: Env) -> tuple[Finding, ClusterMeta | None]:
    """ZooKeeper, the description of the cluster, and the clocks."""
    from sarit.cluster.creation import read_meta
    from sarit.cluster.release import clocks_apart_ms
    from sarit.coordination.limits import STORE_LEASE_SECONDS
    from sarit.coordination.zookeeper import ZooKeeper, server_ms
    from sarit.coordination.zookeeper_ports import ZooKeeperRegisters

    check = "cluster"
    try:
        zookeeper = await ZooKeeper.connect(cluster.hosts, STORE_LEASE_SECONDS, env)
        try:
            meta = await read_meta(ZooKeeperRegisters(zookeeper, cluster.root), cluster)
            path = f"{cluster.root}/clock/{env.random.bytes(8).hex()}"
            before = env.clock.wall_ms()
            apart = clocks_apart_ms(before, await server_ms(zookeeper, path), env.clock.wall_ms())
        finally:
            await zookeeper.close()
    except (SaritError, OSError) as error:
        return Finding(check, FAIL, str(error), "start ZooKeeper, or run `sarit cluster init` first"), None
    text = f"{cluster}: {meta.containers} containers; the clock is {abs(apart) / 1000:.1f} s from that of ZooKeeper"
    if abs(apart) > CLOCK_WARNING_SECONDS * 1000:
        return Finding(check, WARN, text, "let NTP set the clocks: retention by time is wrong by that"), meta
    return Finding(check, OK, text), meta
