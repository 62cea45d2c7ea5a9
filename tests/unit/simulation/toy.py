"""A toy system for tests of the world: a server that counts lines in a file, and clients that reconnect.

`python -m tests.unit.simulation.toy SEED` prints the digest of a run, for the double run in two processes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from simulation.world import World, run_world

SERVER, PORT = "10.0.0.1", 7000


class Echo(asyncio.BufferedProtocol):
    """Writes lines to a file, and replies with its length when they are durable."""

    def __init__(self, env: Any, file: Any, worker: Any) -> None:
        self._env, self._file, self._worker = env, file, worker
        self._buffer = bytearray(7)
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])

        def store() -> int:
            end = self._file.size()
            self._file.pwrite([data], end)
            self._file.datasync()
            return end + len(data)

        def stored(end: int | None, error: BaseException | None) -> None:
            if not self._transport.is_closing():
                self._transport.write(b"%d\n" % end if error is None else b"-1\n")

        self._worker.submit(store, stored)


async def serve(env: Any) -> None:
    env.files.make_dirs("/data")
    path = "/data/lines"
    if env.files.exists(path):
        file = env.files.open(path, "write")
    else:
        file = env.files.open(path, "create")
        env.files.sync_dir("/data")
    worker = env.threads.worker("writer")
    await env.network.serve(lambda: Echo(env, file, worker), SERVER, PORT)
    await asyncio.Event().wait()


class Collector(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.got = bytearray()
        self.changed = asyncio.Event()
        self.lost = False
        self._buffer = bytearray(100)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self._buffer[:nbytes]
        self.changed.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost = True
        self.changed.set()


async def talk(env: Any, world: World, name: str, acked: list[int]) -> None:
    for attempt in range(6):
        try:
            transport, protocol = await env.network.connect(Collector, SERVER, PORT)
        except OSError as error:
            world.trace.note("refused", name, type(error).__name__)
            await asyncio.sleep(0.2 * env.random.random())
            continue
        for _turn in range(20):
            transport.write(b"x" * (1 + int(env.random.random() * 30)))
            # A set of str, and one of tasks: what hash seeds and addresses would put out of order.
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(n / 1000)) for n in range(3)])
            if protocol.lost:
                break
        acked.extend(int(line) for line in bytes(protocol.got).split(b"\n")[:-1])
        transport.close()
        world.trace.note("talked", name, attempt, _turn)


async def run(world: World) -> dict[str, Any]:
    world.net.config = type(world.net.config)(fragment=0.3, retransmit_interval=0.02)
    server = world.machine(SERVER)
    acked: list[int] = []
    server.start().spawn(serve(server.process.env))
    talkers = []
    for n in range(3):
        process = world.machine(f"10.0.1.{n}").start()
        talkers.append(process.spawn(talk(process.env, world, f"client-{n}", acked)))
    chance = world.chance("faults")
    for n in range(6):
        await asyncio.sleep(chance.random() * 0.1)
        if n % 3 == 0:
            world.net.reset_one()
        elif n % 3 == 1:
            server.kill()
        else:
            server.power_off(peers_learn_after=0.2)
        if server.process is None:
            server.start().spawn(serve(server.process.env))
    await asyncio.gather(*talkers)
    return {"acked": max(acked), "stored": len(server.disk.content("/data/lines"))}


if __name__ == "__main__":
    outcome = run_world(int(sys.argv[1]), run, permuted=0.3)
    print(outcome.digest, outcome.value, outcome.error)
