"""One node on one machine, its clients on another, and the state that outlives the node's process.

A process is killed (the page cache survives), or the power fails (it does not).  In both cases its tasks are cancelled,
its threads stop between two effects, its connections end, and its index and storage handles stop working.  Then another
process starts on what is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import detangle

from sarit.core.errors import Unavailable
from sarit.index.memory import IndexFaults, MemoryIndexes
from sarit.log.local import LocalLogProvider
from sarit.process.ownership.claims import claim_directory, claim_long_term_storage
from sarit.process.places.store_parts import StoreParts
from sarit.process.settings import NodeConfig
from sarit.process.standalone import Node
from sarit.storage.directory import open_directory
from sarit.storage.memory import MemoryChunks, StorageFaults
from simulation.backup_port import offer_backups
from simulation.objects import ProcessChunks
from simulation.quotas import change_quotas
from simulation.restart_faults import RestartFaults

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from sarit.controller.jobs import Runner
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.storage.port import ChunkStorage
    from simulation.disk import SimulatedDisk
    from simulation.options import Options
    from simulation.restart_faults import TakenPiece
    from simulation.world import Process, World

NODE: Final = "10.0.0.1"
CLIENTS: Final = "10.0.0.9"
OUTSIDE: Final = "outside"
STORE_PORT: Final = 12345
CONTROLLER_PORT: Final = 9090
DATA: Final = "/data"
SECRET: Final = b"of the simulated installation"
_NOTICE_SECONDS: Final = 0.01
_LOST_AT_CONNECT: Final = 0.02


class Cluster:
    """See the head of the module."""

    def __init__(self, world: World, options: Options, host: str = NODE) -> None:
        """`host`: the address of the node's machine; another than NODE has draws of its own."""
        self.world = world
        self.options = options
        self.host = host
        self.trace = world.trace
        self.net = world.net
        self.net.faults.least, self.net.faults.mean = options.least_delay, options.mean_delay
        self.net.faults.lost_at_connect = _LOST_AT_CONNECT if options.breaks else 0.0
        self.net.config = replace(self.net.config, fragment=options.split, max_fragments=6)
        self.machine = world.machine(host)
        self.machine.disk_latency = self._disk_delay
        clients = world.machine(CLIENTS)
        self.clients = clients.process or clients.start()
        self._latency = self.rng("latency")
        self._storage_rng = self.rng("storage")
        self._index_rng = self.rng("index")
        self._deaths = self.rng("deaths")
        self.storage_faults = StorageFaults(self._storage_delay, self._storage_fault)
        self.chunks = MemoryChunks(self.storage_faults)
        # Chunks whose write lasted longer than any sweep waits: nothing deletes them when their owner was lost.
        self.arrived_late: set[str] = set()
        self.index_faults = IndexFaults(self._index_delay, draw=self._index_rng.random)
        self.indexes = MemoryIndexes(self.index_faults)
        self.store_hosts = [host]
        self.quiet = False
        self.node: Node | None = None
        self.storage: ChunkStorage | None = None
        self.failures: list[str] = []
        # What makes the runner of background jobs of each kind, for a process.
        self.job_kinds: dict[str, Callable[[Process], Runner]] = {}
        self.restart_faults = RestartFaults(self, DATA)
        self.starts = 0
        self._trace_disk()

    def __repr__(self) -> str:
        return f"<Cluster {self.machine!r}>"

    def store_address(self, segment: str, *, reading: bool = False) -> tuple[str, int]:
        """Where a client believes that a segment is; `reading`: it changes nothing there."""
        return self.host, STORE_PORT

    def controller_address(self) -> str:
        """A controller that a new client connects to."""
        return f"{self.host}:{CONTROLLER_PORT}"

    def rng(self, name: str) -> random.Random:
        """The random generator of this name.  Renaming one changes what every seed draws; names are not for people."""
        return self.world.chance(name if self.host == NODE else f"{self.host} {name}")

    @property
    def disk(self) -> SimulatedDisk:
        """The node's disk as it is now."""
        return self.machine.disk

    def use_disk(self, disk: SimulatedDisk) -> None:
        """Put another disk into the node's machine; no process runs on it."""
        self.machine.disk = disk
        self._trace_disk()

    @property
    def process(self) -> Process | None:
        """The node's process."""
        return self.machine.process

    def job_runners(self, process: Process) -> dict[str, Runner] | None:
        """The runners of background jobs of a process; None: it runs none."""
        return {kind: make(process) for kind, make in self.job_kinds.items()} or None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run among the clients."""
        return self.clients.spawn(work, name)

    def outside(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run outside of all processes, so that no crash stops it."""
        task: asyncio.Task[Any] = detangle.spawn(work, host=OUTSIDE, name="outside")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    # -- the process ------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Start a process; False when it failed or died before it served."""
        taken = self.restart_faults.take_piece()
        if taken is not None:
            await self._refuse_without(taken)
        self.restart_faults.rot()
        process = self.machine.start()
        self.starts += 1
        starting = process.spawn(self._serve(process), f"node {self.starts}")
        await self.ended_or_dead(process, starting)
        if process.dead:
            return False
        error = starting.exception()
        if error is None:
            self.trace.note("serves", process.number)
            return True
        self.trace.note("failed to start", process.number, repr(error))
        if not isinstance(error, Unavailable | OSError):
            self.failures.append(f"{type(error).__name__}: the node cannot start: {error}")
        self.end(power=False)
        return False

    async def _refuse_without(self, taken: TakenPiece) -> None:
        """Start a process without a piece of its directory; it must refuse.  Then put the piece back."""
        self.trace.note("fault", f"{taken.what} is missing")
        self.trace.probe("piece_missing")
        process = self.machine.start()
        self.starts += 1
        starting = process.spawn(self._serve(process), f"node {self.starts}")
        await self.ended_or_dead(process, starting)
        if not process.dead:
            complaint = taken.complaint(starting.exception())
            if complaint is not None:
                self.failures.append(complaint)
            self.end(power=False)
        taken.put_back()

    def config(self) -> NodeConfig:
        """The node's."""
        options = self.options
        # Object storage is not in the data directory.
        url = None if options.storage == "directory" else "s3://simulated"
        return NodeConfig(
            DATA, self.host, CONTROLLER_PORT, STORE_PORT, options.containers, url, limits=options.limits(),
            times=options.times(),
        )  # fmt: skip

    async def claim(self, process: Process) -> tuple[DirectoryClaim, ChunkStorage, LocalLogProvider]:
        """The node's directory and storage, claimed by a process, and its logs.  Raises what the claims raise."""
        config = self.config()
        claim = claim_directory(config, process.env, "memory")
        storage: ChunkStorage
        if self.options.storage == "directory":
            storage = await open_directory(f"{DATA}/chunks", process.env)
        else:
            rng = self.rng(f"chunks {process.number}")
            storage = chunks = ProcessChunks(self.chunks, rng, self.outside, self.arrived_late)
            process.on_death(chunks.die)
        logs = LocalLogProvider(process.env, f"{DATA}/log", self.options.log_file_bytes)
        self.storage = storage
        await claim_long_term_storage(config, process.env, storage, claim)
        return claim, storage, logs

    async def _serve(self, process: Process) -> None:
        options = self.options
        process.on_death(self.indexes.crash)
        claim, storage, logs = await self.claim(process)
        # Without quotas there is one request less in two seconds.
        node = Node(
            self.config(), process.env, StoreParts(logs, self.indexes, storage), secret=SECRET, quotas=options.quotas,
            jobs=self.job_runners(process), installation=f"installation-{self.host}",
        )  # fmt: skip
        await node.start(claim)
        if options.backups:
            await offer_backups(node.store_role.backups, self.host, process.env)
        if options.quotas:
            process.spawn(change_quotas(node.store, self.rng(f"quotas {process.number}")), "quotas")
        self.node = node

    async def ended_or_dead(self, process: Process, task: asyncio.Task[Any]) -> None:
        """Wait for a task of a process, or for the death of the process: the clean-up of a dead one may never end."""
        death = asyncio.get_running_loop().create_future()
        process.on_death(lambda: None if death.done() else death.set_result(None))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)

    async def ended(self) -> None:
        """Wait until the process has died, if there is one, and a moment longer."""
        process = self.machine.process
        if process is not None:
            death = asyncio.get_running_loop().create_future()
            process.on_death(lambda: None if death.done() else death.set_result(None))
            await death
        await asyncio.sleep(_NOTICE_SECONDS)

    def end(self, *, power: bool) -> None:
        """The process dies, by a kill or a power cut."""
        self.node = None
        if self.machine.process is None:
            return
        self.trace.note("fault", "power cut" if power else "kill")
        self.trace.probe("power_cut" if power else "kill")
        peers_learn_after = self._deaths.choice((0.0, 0.05, 2.0)) * self._deaths.random()
        if power:
            self.machine.power_off(peers_learn_after)
        else:
            self.machine.kill(peers_learn_after)
        self._trace_disk()
        for task, info in list(detangle.current_loop().task_info.items()):
            if info.host == self.host and not task.done():
                task.cancel()

    def crash(self, host: str, *, power: bool) -> None:
        """The process of the machine dies at a crash point."""
        self.end(power=power)

    async def shut_down(self) -> None:
        """Stop the node cleanly, then end the process."""
        process, node = self.machine.process, self.node
        if process is None or node is None:
            return
        stopping = process.spawn(node.stop(), "stop")
        await self.ended_or_dead(process, stopping)
        if not process.dead and (error := stopping.exception()) is not None:
            self.failures.append(f"{type(error).__name__}: the node cannot stop: {error}")
        self.end(power=False)

    # -- drawn behaviour ----------------------------------------------------------------------------

    def _trace_disk(self) -> None:
        self.disk.listeners[:] = [lambda what: self.trace.say("disk", what)]

    def _disk_delay(self) -> float:
        mean = self.options.disk_latency
        return min(self._latency.expovariate(1.0) * mean, 20 * mean)

    def _storage_delay(self, length: int) -> float:
        return 0.0 if self.quiet else self._storage_rng.expovariate(1.0) * self.options.storage_latency

    def _storage_fault(self) -> str:
        if self.quiet or self._storage_rng.random() >= self.options.storage_refusals:
            return ""
        return self._storage_rng.choice(("refused", "applied"))

    def _index_delay(self) -> float:
        return self._index_rng.expovariate(1.0) * self.options.disk_latency
