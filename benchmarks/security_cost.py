"""What TLS and users cost: throughput and waits of the same loads, with and without, in pairs of the same run.

python -m benchmarks.security_cost [--pairs 5] [--load small --load large --load reads] [--only tls] [--profile]

Every measurement has a fresh node, and a client in a process of its own.  The order alternates, so that a machine that
becomes slower does so for both.  Of small appends the wait of each is measured at a fixed rate, too: far below what the
node can do, so that the wait is that of one append.  `--profile` prints where the client's process spends its time.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import cost_loads
from benchmarks.cost_loads import EVENT, READY, RUN, STREAM
from sarit.cli.dev_ca import make_certificates
from sarit.client import aio
from sarit.security.users import User, format_users, hash_password

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SMALL_APPENDS: Final = 40_000
TIMED_APPENDS: Final = 1_500
TIMED_PER_SECOND: Final = 150.0
LARGE_BYTES: Final = 500_000_000
_PASSWORD: Final = "a password for figures"


@dataclass(frozen=True, slots=True)
class Case:
    """With what a node is started."""

    name: str
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def cases(directory: Path, parts: str) -> tuple[Case, Case]:
    """A node that lets everybody in, and one with `parts`: `tls`, `users` or `both`."""
    options: list[str] = []
    environment: list[tuple[str, str]] = []
    if parts in ("tls", "both"):
        files = {name: str(path) for name, path in make_certificates(directory / "certificates", (), 2).items()}
        options += ["--tls-cert", files["server"], "--tls-key", files["server key"], "--tls-ca", files["ca"]]
        environment.append(("SARIT_CA_FILE", files["ca"]))
    if parts in ("users", "both"):
        users, keys = directory / "users", directory / "keys"
        users.write_text(format_users([User("root", hash_password(_PASSWORD), frozenset({"admin"}))]))
        keys.write_text(os.urandom(32).hex() + "\n")
        keys.chmod(0o600)
        options += ["--users", str(users), "--token-keys", str(keys)]
        environment += [("SARIT_USER", "root"), ("SARIT_PASSWORD", _PASSWORD)]
    return Case("without"), Case("with", tuple(options), tuple(environment))


async def small(controller: str) -> dict[str, float]:
    """Appends of one event each by many writers that wait for each; then one writer at a fixed rate, for the wait."""
    async with await aio.connect(controller, wait=60) as client:
        rate = await cost_loads.small(client, SMALL_APPENDS)
        waits = []
        async with client.writer(STREAM) as writer:
            due = time.perf_counter()
            for _ in range(TIMED_APPENDS):
                due += 1 / TIMED_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                asked = time.perf_counter()
                writer.write(EVENT, key="k")
                await writer.flush()
                waits.append(time.perf_counter() - asked)
    waits.sort()
    return {"per second": rate, "p50 ms": waits[len(waits) // 2] * 1e3, "p95 ms": waits[len(waits) * 95 // 100] * 1e3}


async def large(controller: str) -> dict[str, float]:
    """Appends of many events each: one writer at full speed."""
    async with await aio.connect(controller, wait=60) as client:
        return {"per second": await cost_loads.large(client, LARGE_BYTES)}


async def reads(controller: str) -> dict[str, float]:
    """One reader of a stream that was just written, from its head to its tail."""
    async with await aio.connect(controller, wait=60) as client:
        await cost_loads.large(client, LARGE_BYTES)
        begun, size = time.perf_counter(), 0
        async with client.reader(STREAM, end="tail") as reader:
            async for batch in reader.arrow_batches():
                size += batch.column("event").nbytes
        return {"per second": size / (time.perf_counter() - begun)}


LOADS: Final[dict[str, Callable[[str], Awaitable[dict[str, float]]]]] = {"small": small, "large": large, "reads": reads}


def measure(load: str, case: Case, directory: Path, *, profile: bool) -> dict[str, float]:
    """Figures of one load on a fresh node."""
    command = [sys.executable, "-c", RUN, "standalone", "--data-dir", str(directory), "--http-port", "off"]
    command += ["--controller-port", "0", "--store-port", "0", *case.options]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd() / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as node:
        assert node.stdout is not None
        try:
            found = next(match for line in node.stdout if (match := READY.search(line)))
            work = [sys.executable, "-m", "benchmarks.security_cost", "--client", found[1], "--load", load]
            done = subprocess.run(
                [*work, *(["--profile"] if profile else [])], env={**env, **dict(case.environment)},
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
            if profile:
                print(f"-- {load}, {case.name}\n{done.stdout}")
            return figures
        finally:
            node.kill()
            shutil.rmtree(directory, ignore_errors=True)


def _client(load: str, controller: str, *, profile: bool) -> None:
    with cProfile.Profile() as seen:
        if not profile:
            seen.disable()
        figures: Any = asyncio.run(LOADS[load](controller))  # type: ignore[arg-type]
    if profile:
        pstats.Stats(seen).sort_stats("tottime").print_stats(16)
    print(json.dumps(figures))


def _compare(load: str, pair: tuple[Case, Case], pairs: int, place: Path, *, profile: bool) -> None:
    found: list[dict[str, dict[str, float]]] = []
    for number in range(pairs):
        order = pair if number % 2 else pair[::-1]
        found.append({case.name: measure(load, case, place / case.name, profile=profile) for case in order})
        print(f"{load}: {json.dumps({name: {k: round(v, 2) for k, v in f.items()} for name, f in found[-1].items()})}")
    ratios = [one["with"]["per second"] / one["without"]["per second"] for one in found]
    print(f"{load}: throughput {statistics.median(ratios):.2f} of that without, {min(ratios):.2f} to {max(ratios):.2f}")
    for wait in ("p50 ms", "p95 ms"):
        if wait in found[0]["with"]:
            more = [one["with"][wait] - one["without"][wait] for one in found]
            print(f"{load}: {wait} {statistics.median(more):+.2f}, {min(more):+.2f} to {max(more):+.2f}")
    sys.stdout.flush()


def main() -> None:
    """Measure, and print a line for each pair and one for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--load", choices=list(LOADS), action="append")
    parser.add_argument("--only", choices=("tls", "users"), help="not both of them")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        _client(options.load[0], options.client, profile=options.profile)
        return
    with tempfile.TemporaryDirectory(prefix="security-cost-") as place:
        pair = cases(Path(place), options.only or "both")
        for load in options.load or list(LOADS):
            _compare(load, pair, options.pairs, Path(place), profile=options.profile)


if __name__ == "__main__":
    main()
