"""Processor time of a call of the controller's API at both ends: `python -m benchmarks.micro.grpc_calls [CALLS]`.

Server and client are processes of their own on loopback; the method of the call does nothing.  Prints one JSON object:
microseconds for a call at server and client, one call at a time and 32 at once.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from sarit.client.core.controller import ControllerClient
from sarit.controller.service import handlers
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.methods import PRAVEGA
from sarit.rpc.request_limiter import RequestLimiter

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SCOPE = pb.ScopeInfo(scope="scope")


class Family:
    """Every rpc, answered at once."""

    def __getattr__(self, name: str) -> Any:
        async def answer(request: Any) -> Any:
            return pb.ExistsResponse(exists=True)

        return answer


def serve(pipe: Connection) -> None:
    """Serve until the pipe says None; answer all else on it with the processor time so far."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        listener = GrpcListener(handlers(PRAVEGA, [Family()], RequestLimiter()), 10)
        server = await loop.create_server(listener.connection, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        while await loop.run_in_executor(None, pipe.recv) is not None:
            pipe.send(time.process_time())

    uvloop.run(main())


async def measure(port: int, pipe: Connection, calls: int) -> dict[str, dict[str, float]]:
    """Make calls; microseconds of each end for one."""
    client = ControllerClient([("127.0.0.1", port)])

    async def make(count: int, at_once: int) -> None:
        async def one() -> None:
            for _ in range(count // at_once):
                await client.call(client.stub.checkScopeExists, SCOPE)

        await asyncio.gather(*(one() for _ in range(at_once)))

    def server_seconds() -> float:
        pipe.send("?")
        return float(pipe.recv())

    found = {}
    await make(500, 1)
    for at_once in (1, 32):
        server, own = server_seconds(), time.process_time()
        await make(calls, at_once)
        found[f"{at_once} at once"] = {
            "server_us": round((server_seconds() - server) / calls * 1e6, 1),
            "client_us": round((time.process_time() - own) / calls * 1e6, 1),
        }
    await client.close()
    return found


def main() -> None:
    """Start the server, measure, and print."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 3200
    context = multiprocessing.get_context("spawn")
    mine, servers = context.Pipe()
    process = context.Process(target=serve, args=(servers,))
    process.start()
    print(json.dumps(uvloop.run(measure(mine.recv(), mine, calls))))
    mine.send(None)
    process.join()


if __name__ == "__main__":
    main()
