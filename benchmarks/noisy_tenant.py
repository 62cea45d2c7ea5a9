"""What a noisy tenant costs another: p95 of the appends of A, alone and beside B with a quota.

python -m benchmarks.noisy_tenant [--rounds N] [--seconds S] [--quota-mib M] [--free]

A writes single events to its scope at half of the rate that it reaches alone, on a schedule: an append that is late
counts from when it was due.  B writes at full speed from processes of its own, by several connections.  The cases
take turns in one run of one node, in another order each round, so that a machine that becomes slower does so for all;
B is stopped while A is alone.  The figure is the median over the rounds of the ratio to A alone.

python -m benchmarks.noisy_tenant --base TREE [--rounds N]    TREE: a checkout of a commit before quotas

Processor time of a node for the same appends, without a quota, of TREE and of this tree, in pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import cost_loads
from benchmarks.cost_loads import cpu_seconds
from sarit.client import aio
from sarit.client.core.quotas import change_quotas
from sarit.core.limits import MIB
from sarit.security.quotas import Quota

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.client.aio import Client

_READY: Final = re.compile(r"controller (\S+:\d+), store")
_RUN: Final = "from sarit.cli.main import main; main()"
NOISY_PROCESSES: Final = 2
WRITERS: Final = 8
SMALL_APPENDS: Final = 60_000
LARGE_BYTES: Final = 1_500_000_000
NOISE_BYTES: Final = 1500 * MIB  # of each process: log and chunks hold that twice
ALONE, LIMITED, FREE = CASES = ("alone", "beside B with a quota", "beside B without one")
_EVENT: Final = b"x" * 100
_BATCH: Final = [b"y" * 1000] * 500


@contextmanager
def _node(directory: Path, tree: Path | None = None) -> Iterator[tuple[int, str]]:
    """The process and the controller of a node."""
    command = [sys.executable, "-c", _RUN, "standalone", "--data-dir", str(directory), "--http-port", "off"]
    command += ["--controller-port", "0", "--store-port", "0"]
    env = {**os.environ, "PYTHONPATH": str((tree or Path.cwd()) / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as node:
        assert node.stdout is not None
        try:
            yield node.pid, next(match for line in node.stdout if (match := _READY.search(line)))[1]
        finally:
            node.kill()


async def _noise(controller: str) -> None:
    """Tenant B, one process of it: until it has written NOISE_BYTES, or its parent has ended."""
    parent, written = os.getppid(), 0
    async with await aio.connect(controller, wait=60) as client, client.writer("noisy/s") as writer:
        while written < NOISE_BYTES and os.getppid() == parent:
            writer.write_many(_BATCH)
            written += sum(map(len, _BATCH))
            await writer.drain()


class Tenant:
    """Tenant A."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._writers: list[Any] = []

    async def start(self) -> None:
        """Set its writers up."""
        for _ in range(WRITERS):
            self._writers.append(await self._client.writer("quiet/s").__aenter__())
        await self.most(0.5)

    async def most(self, seconds: float) -> float:
        """Appends a second when each writer waits for its acknowledgement alone."""
        end, count = time.monotonic() + seconds, 0

        async def one(writer: Any) -> None:
            nonlocal count
            while time.monotonic() < end:
                writer.write(_EVENT)
                await writer.flush()
                count += 1

        await asyncio.gather(*map(one, self._writers))
        return count / seconds

    async def p95(self, rate: float, seconds: float) -> float:
        """The 95th percentile of the latency at a rate, in seconds."""
        found: list[float] = []
        began = time.monotonic()

        async def one(writer: Any, number: int) -> None:
            step = len(self._writers) / rate
            due = began + step * number / len(self._writers)
            # What is not written in twice the time, would only be later still.
            while due < began + seconds and time.monotonic() < began + 2 * seconds:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                writer.write(_EVENT)
                await writer.flush()
                found.append(time.monotonic() - due)
                due += step

        await asyncio.gather(*(one(writer, number) for number, writer in enumerate(self._writers)))
        return statistics.quantiles(found, n=20)[-1]


async def _compare(controller: str, options: argparse.Namespace) -> None:
    async with await aio.connect(controller, wait=60) as client:
        for scope in ("quiet", "noisy"):
            await client.create_scope(scope)
            await client.create_stream(f"{scope}/s", segments=4)
        tenant = Tenant(client)
        await tenant.start()
        rate = await tenant.most(2.0) / 2
        print(f"half load of A: {rate:.0f} appends/s; quota of B: {options.quota_mib} MiB/s", flush=True)
        command = [sys.executable, "-m", "benchmarks.noisy_tenant", "--noise", controller]
        noisy = [subprocess.Popen(command) for _ in range(NOISY_PROCESSES)]
        try:
            await _rounds(client, tenant, rate, noisy, options)
        finally:
            for process in noisy:
                process.kill()
                process.wait()


async def _rounds(
    client: Client, tenant: Tenant, rate: float, noisy: list[subprocess.Popen[bytes]], options: argparse.Namespace
) -> None:
    ratios: dict[str, list[float]] = {LIMITED: [], FREE: []}
    cases = CASES if options.free else CASES[:2]
    for number in range(options.rounds):
        found = {}
        for place in range(len(cases)):
            case = cases[(place + number) % len(cases)]
            quota = Quota(bytes_in=int(options.quota_mib * MIB)) if case == LIMITED else None
            await change_quotas(client.session.controller, {"scope:noisy": quota})
            for process in noisy:
                process.send_signal(signal.SIGSTOP if case == ALONE else signal.SIGCONT)
            await asyncio.sleep(1.5)  # what was on its way ends, and a burst is used up
            found[case] = await tenant.p95(rate, options.seconds)
        for case in cases[1:]:
            ratios[case].append(found[case] / found[ALONE])
        print(", ".join(f"{case}: p95 {found[case] * 1000:.2f} ms" for case in cases), flush=True)
    for case in cases[1:]:
        listed = ratios[case]
        print(f"{case}: median of {len(listed)} ratios {statistics.median(listed):.3f}, "
              f"{min(listed):.2f} to {max(listed):.2f}")  # fmt: skip


async def _load(name: str, controller: str) -> None:
    async with await aio.connect(controller, wait=60) as client:
        if name == "small":
            await cost_loads.small(client, SMALL_APPENDS)
        else:
            await cost_loads.large(client, LARGE_BYTES)


def _pairs(base: Path, rounds: int) -> None:
    for name in ("small", "large"):
        ratios = []
        for number in range(rounds):
            used: dict[Path | None, float] = {}
            for tree in (base, None) if number % 2 else (None, base):
                with (
                    tempfile.TemporaryDirectory(prefix="noisy-") as place,
                    _node(Path(place), tree) as (pid, controller),
                ):
                    before = cpu_seconds(pid)
                    asyncio.run(_load(name, controller))
                    used[tree] = cpu_seconds(pid) - before
            ratios.append(used[None] / used[base])
            print(f"{name}: before {used[base]:.2f} s, now {used[None]:.2f} s, {ratios[-1]:.3f}", flush=True)
        print(f"{name}: median of {rounds} pairs {statistics.median(ratios):.3f}, "
              f"{min(ratios):.3f} to {max(ratios):.3f}", flush=True)  # fmt: skip


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--quota-mib", type=float, default=2.0)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--free", action="store_true", help="also without a quota: it fills 6 GB of disk")
    parser.add_argument("--noise", help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # node, noise and directory end with it
    if options.noise:
        asyncio.run(_noise(options.noise))
    elif options.base:
        _pairs(options.base, options.rounds)
    else:
        with ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="noisy-"))
            _, controller = stack.enter_context(_node(Path(place)))
            asyncio.run(_compare(controller, options))


if __name__ == "__main__":
    main()
