"""The real implementation of the ports in `env/ports.py`; `env/real_files.py` has the file system.

Threads.  A worker is one thread fed by a queue.  Results return in batches: the first one schedules one wake-up of the
event loop, and those that finish before it runs are delivered with it.  While the loop is busy, a hand-over also waits
for the GIL; processes that have a log thread set a short switch interval (`limits.SWITCH_INTERVAL_SECONDS`).

`Thread.start` waits without bound for a thread that dies of a lack of memory before it runs.  So another thread starts
that of a worker, and a worker that does not run in time fails what was submitted to it, as one whose thread ends does.
"""

from __future__ import annotations

import _thread
import asyncio
import functools
import logging
import os
import queue
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.core.extras import require
from sarit.core.request_ids import outside_requests
from sarit.env.limits import (
    DELIVERY_SECONDS,
    HAND_OVER_RETRY_SECONDS,
    LISTEN_BACKLOG,
    SOCKET_BUFFER_BYTES,
    WORKER_START_SECONDS,
)
from sarit.env.passed_sockets import passed_socket
from sarit.env.ports import Env

if TYPE_CHECKING:
    from sarit.env.ports import Files

if TYPE_CHECKING:
    from ssl import SSLContext

    from sarit.env.tls import ServerTls
    from sarit.env.traces import TraceSettings

T = TypeVar("T")

_log = logging.getLogger("sarit")

# Idle seconds before the first keep-alive probe, seconds between probes, and unanswered probes until the end.
# Each system has its own choice of them.
_KEEP_ALIVE: Final = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
}


class RealClock:
    """The machine's clocks."""

    # The seconds since an arbitrary moment.  The builtin itself, since each read of a connection asks for the time.
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def thread_seconds(self) -> float:
        """Return the seconds of processor time that the calling thread has used."""
        return time.thread_time()


class RealRandom:
    """The operating system's randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return os.urandom(count)

    def random(self) -> float:
        """Return a float in [0, 1)."""
        return self._random.random()


_Job = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class RealWorker:
    """One thread and its queue."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._results: deque[tuple[Callable[[Any, BaseException | None], None], Any, BaseException | None]] = deque()
        self._wake_scheduled = False
        self._closed = False
        self._lost = False
        self._ended = asyncio.Event()
        # Taken by the thread when it begins, or by `_check_begun`, after which the thread runs no job.
        self._begun = threading.Lock()
        # A daemon thread, so that the interpreter does not wait for it at exit.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        _thread.start_new_thread(self._thread.start, ())
        self._loop.call_later(WORKER_START_SECONDS, self._check_begun)

    def __repr__(self) -> str:
        return f"<RealWorker {self._thread.name}>"

    def submit(self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `call` on the thread, then `done(result, error)` on the loop."""
        if self._closed:
            raise RuntimeError(f"worker {self._thread.name} is closed")
        self._jobs.put((call, done))
        if self._lost:
            self._loop.call_soon(self._fail_jobs)

    def run(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run `call` on the thread and await its result."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            # Drops the result when the caller was cancelled: the call has run to its end all the same.
            if future.done():
                return
            try:
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)  # type: ignore[arg-type]
            except asyncio.InvalidStateError:
                pass  # the handler of Ctrl-C, which runs between any two lines, has cancelled the caller

        self.submit(call, done)
        return future

    def close(self) -> Coroutine[Any, Any, None]:
        """Finish what was submitted and end the thread; closing twice is harmless.

        The thread ends also when the result is never awaited, as by a task that is cancelled before it begins."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        return self._wait_for_end()

    async def _wait_for_end(self) -> None:
        # `_deliver` sets `_ended` as the last result, when every callback has run.
        await self._ended.wait()
        if not self._lost:
            self._thread.join()

    def _check_begun(self) -> None:
        if self._begun.acquire(blocking=False):
            _log.error("thread %s did not begin within %.0f s", self._thread.name, WORKER_START_SECONDS)
            self._lose()

    def _lose(self) -> None:
        """Fail the calls that were submitted and those that will be, since there is no thread."""
        self._lost = True
        self._fail_jobs()
        self._ended.set()

    def _fail_jobs(self) -> None:
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                self._results.append((job[1], None, RuntimeError(f"thread {self._thread.name} does not run")))
        self._deliver()

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._work()
        except BaseException:
            _log.critical("thread %s ends", self._thread.name, exc_info=True)
            self._wake_scheduled = False
            self._hand_over(lambda _result, _error: self._lose(), None, None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, done = job
            result, error = None, None
            try:
                result = call()
            except BaseException as failure:  # passed to the caller, whatever it is
                error = failure
            if not self._hand_over(done, result, error):
                return
            del job, call, done, result, error  # hold no large buffers while idle
        self._hand_over(lambda _result, _error: self._ended.set(), None, None)

    def _hand_over(
        self, done: Callable[[Any, BaseException | None], None], result: object, error: BaseException | None
    ) -> bool:
        """Queue a result for the loop, as soon as there is memory for it.  Returns False when the loop is closed."""
        queued = False
        while True:
            try:
                if not queued:
                    self._results.append((done, result, error))
                    queued = True
                # Reads the flag after the append; `_deliver` resets it before it drains.  So no result is missed.
                if not self._wake_scheduled:
                    self._wake_scheduled = True
                    self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return False
            except MemoryError:
                self._wake_scheduled = False
                time.sleep(HAND_OVER_RETRY_SECONDS)
            else:
                return True

    def _deliver(self) -> None:
        self._wake_scheduled = False
        end = time.monotonic() + DELIVERY_SECONDS
        while self._results:
            done, result, error = self._results.popleft()
            try:
                done(result, error)
            except Exception as bug:  # an error in one callback must not lose the results of others
                self._loop.call_exception_handler(
                    {"message": f"a callback of worker {self._thread.name} failed", "exception": bug}
                )
            if self._results and time.monotonic() >= end:
                # Lets the loop do other work first.  The order is kept: new results queue behind the rest.
                self._wake_scheduled = True
                self._loop.call_soon(self._deliver)
                return


class RealThreads:
    """Workers on threads."""

    def worker(self, name: str) -> RealWorker:
        """Start a worker."""
        return RealWorker(name)


class RealNetwork:
    """TCP on the running loop, with TLS where it is given one."""

    def __init__(self, server_tls: ServerTls | None = None, client_tls: Callable[[], SSLContext] | None = None) -> None:
        self._server_tls = server_tls
        self._client_tls = client_tls

    async def serve(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.AbstractServer:
        """Listen; port 0 picks a free one.

        Accepted sockets inherit the options of the listening one, and the window scale is agreed
        at the handshake: so the options are set there, before `listen`."""
        loop = asyncio.get_running_loop()
        # Prefers IPv4 where the name has addresses of both kinds.
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        passed = passed_socket(str(address[0]), port)
        listener = passed or socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _tune(listener)
            listener.setblocking(False)
            if passed is None:
                listener.bind(address)
            if self._server_tls is None:
                return await loop.create_server(factory, sock=listener, backlog=LISTEN_BACKLOG)
            from sarit.env.tls_server import Handshakes, TlsServer

            return TlsServer(factory, Handshakes(self._server_tls), [listener], LISTEN_BACKLOG)
        except BaseException:
            listener.close()
            raise

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        """Open a connection."""
        loop = asyncio.get_running_loop()
        context = self._client_tls() if self._client_tls is not None else None
        with outside_requests():  # the connection's callbacks run in this context, also for later requests
            transport, protocol = await loop.create_connection(factory, host, port, ssl=context)
        # Set after the handshake, so these buffers do not raise the window scale, unlike in `serve`.
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _tune(sock)
        return transport, protocol


def _tune(sock: socket.socket) -> None:
    """Set the options of a socket: no Nagle delay, keep-alive to find lost peers, large buffers where allowed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if _big_buffers_allowed():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)


@functools.cache
def _big_buffers_allowed() -> bool:
    """Return whether the kernel grants buffers of SOCKET_BUFFER_BYTES.

    The kernel cuts a size above net.core.rmem_max to it, often far below what its own tuning would reach, and setting
    a size disables that tuning.  So no size is set where it would be cut."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            # Checks both directions, which have maximums of their own (rmem_max, wmem_max).
            probe.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
            if probe.getsockopt(socket.SOL_SOCKET, option) < SOCKET_BUFFER_BYTES:
                return False
    return True


def real_env(
    server_tls: ServerTls | None = None, client_tls: Callable[[], SSLContext] | None = None,
    traces: TraceSettings | None = None, service: str = "sarit",
) -> Env:  # fmt: skip
    """Return the ports of this machine; `server_tls`: for accepted connections, `client_tls`: for those it opens.

    `traces`: where to send traces, as those of `service`.  Raises Invalid when the extra `traces` is not installed."""
    opened = None
    if traces is not None:
        require("traces", "--traces")
        from sarit.env.otlp import open_traces

        opened = open_traces(traces, service)
    plain = RealNetwork() if client_tls is not None else None
    network = RealNetwork(server_tls, client_tls)
    return Env(RealClock(), RealRandom(), _files(), RealThreads(), network, opened, plain)


def _files() -> Files:
    """Return the files of this machine.  Clients use no files and may run where `real_files` cannot be imported
    (docs/decisions/0801)."""
    try:
        from sarit.env.real_files import RealFiles
    except ImportError as error:
        return _NoFiles(error)
    return RealFiles()


class _NoFiles:
    """The files of a system on which no node runs."""

    def __init__(self, reason: ImportError) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise OSError(f"nodes run on Linux alone: {self._reason}")
