"""A world in one process: machines, their disks, the network between them, virtual time, and one seed for all
randomness.

detangle's event loop runs everything in virtual time.  Random draws come from generators named after their use
(`World.chance`), so that a new draw in one place does not change the others.

Sources of nondeterminism, and how each is handled:

- sets of tasks and futures are ordered by address: tasks and futures of this loop hash by their number instead
  (`simulation/loop.py`);
- `time.*` called by libraries: patched to virtual time while steps run;
- garbage collection runs finalizers at any time: it is disabled during a run, after one collection before it;
- the hash seed orders sets of str and bytes: a test runs seeds twice with different hash seeds and finds such sets.

`Machine.kill` ends the process of a machine (kill -9), `Machine.power_off` the machine: its disk then loses unsynced
data by the fault model of `simulation/disk.py`.  Tasks of a dead process are cancelled, and their `finally` blocks run,
when its files, threads and sockets are gone already.  Everything else they reach must go through a port that stops
working with the process (`Process.on_death`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from typing import TYPE_CHECKING, Any, TypeVar

import detangle
from detangle._context import current_host
from detangle.strategies import Strategy

from sarit.env.ports import Env
from simulation.disk import SimulatedDisk
from simulation.loop import SeedLoop
from simulation.network import HostNetwork, SimulatedNetwork
from simulation.threads import SimulatedThreads
from simulation.trace import Trace, TraceLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import TextIO

    from detangle._loop import SimLoop

T = TypeVar("T")

EPOCH_MS = 1_760_000_000_000
MOST_STEPS = 3_000_000
MOST_SECONDS = 3_600.0


def now() -> float:
    """Return the virtual time, in seconds."""
    return asyncio.get_running_loop().time()


class SeededOrder(Strategy):
    """Ready tasks run in asyncio's order, except for a share of steps, which pick one at random."""

    name = "seeded"

    def __init__(self, rng: random.Random, permuted: float) -> None:
        self._rng = rng
        self._permuted = permuted

    def schedule(self, lanes: Any) -> int:
        """The index of the lane to run."""
        if self._permuted and self._rng.random() < self._permuted:
            return self._rng.randrange(len(lanes))
        return 0

    def choose(self, n: int, kind: str) -> int:
        """A number."""
        return self._rng.randrange(n)

    def flip(self, p: float, kind: str) -> bool:
        """Whether something of this probability happens."""
        return self._rng.random() < p


class MachineClock:
    """A machine's clocks.  `rate`: speed of its monotonic clock; `jump_ms`: offset of its wall clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float = 1.0) -> None:
        self._loop = loop
        self.rate = rate
        self.jump_ms = 0

    def monotonic(self) -> float:
        """See `ports.Clock`."""
        return self._loop.time() * self.rate

    def wall_ms(self) -> int:
        """See `ports.Clock`."""
        return EPOCH_MS + self.jump_ms + int(self._loop.time() * 1000)


class SeededRandom:
    """`Random` of env/ports.py."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def bytes(self, count: int) -> bytes:
        """See `ports.Random`."""
        return self._rng.randbytes(count)

    def random(self) -> float:
        """See `ports.Random`."""
        return self._rng.random()


class Process:
    """A process on a machine, from its start to its death."""

    def __init__(self, machine: Machine, number: int) -> None:
        world = machine.world
        self.machine = machine
        self.number = number
        self.dead = False
        self._on_death: list[Callable[[], None]] = []
        self.threads = SimulatedThreads(machine.disk_latency)
        self.env = Env(
            machine.clock,
            SeededRandom(world.chance(f"{machine.address}/{number}")),
            machine.disk,
            self.threads,
            HostNetwork(machine.address, world.trace),
        )

    def __repr__(self) -> str:
        return f"<Process {self.number} of {self.machine.address}{', dead' if self.dead else ''}>"

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run `work` in this process."""
        assert not self.dead, self
        return detangle.spawn(work, host=self.machine.address, name=name)

    def on_death(self, call: Callable[[], None]) -> None:
        """Have `call` called when the process dies, before its tasks are cancelled."""
        self._on_death.append(call)

    def die(self) -> None:
        """Called by the machine."""
        self.dead = True
        self.threads.halt()
        for call in self._on_death:
            call()


class Machine:
    """A host: its address, its disk, its clock, and the process that runs on it now."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = address
        self.rng = world.chance(f"machine {address}")
        self.disk = SimulatedDisk(world.chance(f"disk of {address}"))
        self.disk_latency: Callable[[], float] = lambda: self.rng.random() * 0.0005
        self.clock = MachineClock(world.loop)
        self.process: Process | None = None
        self._starts = 0

    def __repr__(self) -> str:
        return f"<Machine {self.address}, {self.process or 'no process'}>"

    def start(self) -> Process:
        """Start a process; the machine is up."""
        assert self.process is None, self.process
        self.world.net.restart(self.address)
        self._starts += 1
        self.process = Process(self, self._starts)
        self.world.trace.note("start", self.address, self._starts)
        return self.process

    def kill(self, peers_learn_after: float = 0.001) -> None:
        """The process dies; the machine and its page cache survive."""
        self._end(peers_learn_after)
        self.world.net.restart(self.address)
        self.disk.kill()

    def power_off(self, peers_learn_after: float = 10.0) -> None:
        """The machine loses power; its disk loses part of the unsynced changes."""
        self._end(peers_learn_after)
        self.disk = self.disk.crash()

    def _end(self, peers_learn_after: float) -> None:
        process, self.process = self.process, None
        self.world.trace.note("death of", self.address, self._starts)
        if process is not None:
            process.die()
        self.world.net.kill(self.address, peers_learn_after)


class World:
    """Everything of one run."""

    def __init__(self, seed: int, loop: SeedLoop, trace: Trace) -> None:
        self.seed = seed
        self.loop = loop
        self.trace = trace
        self.net = SimulatedNetwork(loop, detangle.NetConfig(), self.chance("network"))
        loop._net = self.net
        self._machines: dict[str, Machine] = {}

    def __repr__(self) -> str:
        return f"<World {self.seed} at {self.loop.time():.3f} s>"

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.loop.time()

    def chance(self, name: str) -> random.Random:
        """The generator of this name."""
        return random.Random(f"{self.seed}/{name}")

    def machine(self, address: str) -> Machine:
        """The machine at an address, made when there is none."""
        machine = self._machines.get(address)
        if machine is None:
            machine = self._machines[address] = Machine(self, address)
        return machine

    def machines(self) -> list[Machine]:
        """All machines, in the order they were made."""
        return list(self._machines.values())


class Outcome:
    """How a run ended."""

    def __init__(self, seed: int, trace: Trace, result: detangle.RunResult) -> None:
        self.seed = seed
        self.trace = trace
        self.digest = trace.digest()
        self.value = result.value
        self.steps = result.steps
        self.virtual_seconds = result.virtual_time
        failure = result.failure
        self.failures = [
            f"{found.kind}: {found.message}" for found in (failure, *result.secondary) if found is not None
        ]
        self.error: BaseException | None = None
        if failure is not None:
            self.error = failure.exception or AssertionError(f"{failure.kind}: {failure.message}")
            self.error.add_note(f"{failure.kind}: {failure.message}")


def run_world(
    seed: int, main: Callable[[World], Awaitable[Any]], *, permuted: float = 0.0, sink: TextIO | None = None
) -> Outcome:
    """Run `main(world)` to its end, deterministically."""
    trace = Trace(sink=sink)
    world: World

    def set_up(loop: SimLoop) -> None:
        nonlocal world
        trace.now = loop.time
        world = World(seed, SeedLoop.take_over(loop, trace), trace)
        # Once for the run, not for each step: no other code runs in between.
        loop._time_patch.enter()

    async def body() -> Any:
        current_host.set("localhost")
        return await main(world)

    config = detangle.SimConfig(patch_time=True, max_steps=MOST_STEPS, max_time=MOST_SECONDS)
    strategy = SeededOrder(random.Random(f"{seed}/order"), permuted)
    handler = TraceLog(trace)
    log = logging.getLogger("sarit")
    level, propagate = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        result = detangle.execute(body, config=config, strategy=strategy, setup=set_up)
    finally:
        world.loop._time_patch.exit()
        if collecting:
            gc.enable()
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
    return Outcome(seed, trace, result)
