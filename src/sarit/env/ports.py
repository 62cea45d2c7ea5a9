"""The ports to the world: clock, random, files, threads, network.

Everything that is not a pure function of its input reaches the world through an `Env`, so that one deterministic
simulation can run the whole node.  `env/real.py` and `env/real_files.py` are the only modules that use the operating
system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.env.traces import Traces

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Two clocks: `monotonic` for leases and timeouts, `wall_ms` for records and people."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment; they never fall."""

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970; they may jump either way."""


class Random(Protocol):
    """The only source of randomness."""

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""

    def random(self) -> float:
        """Return a float in [0, 1)."""


class File(Protocol):
    """An open file.  Calls block: make them on a `Worker`.  All raise OSError.

    After a failed write or sync the content is undefined: close the file, never retry on it.
    """

    def pread(self, length: int, offset: int) -> bytes:
        """Return `length` bytes from `offset`, or fewer where the file ends."""

    def scan(self, length: int, offset: int) -> Buffer:
        """Read as `pread` does from a file opened with "scan", into memory that only the result refers to."""

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write all parts one after the other from `offset`.  Returns their total length."""

    def pwrite_durably(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write as `pwrite` does; the data and the length up to its end are durable when this returns.

        Uses one system call where the system has one.  Earlier writes that were not synced may still not be durable."""

    def datasync(self) -> None:
        """Make the data and the length of the file durable (fdatasync)."""

    def forget(self, offset: int, length: int) -> None:
        """Let the system drop a range of synced data from the page cache, because it is not read soon."""

    def allocate(self, length: int) -> None:
        """Give the file `length` bytes of real, zeroed blocks."""

    def size(self) -> int:
        """Return the length in bytes."""

    def truncate(self, length: int) -> None:
        """Cut or extend the file to `length` bytes."""

    def lock(self) -> bool:
        """Take an exclusive advisory lock for the life of this file; False when another holds it."""

    def close(self) -> None:
        """Release the descriptor and its lock."""


class Files(Protocol):
    """A file system.  Calls block: make them on a `Worker`.  All raise OSError."""

    def open(self, path: str, mode: str) -> File:
        """Open `path`; mode "read", "scan", "write" (must exist), "create" (must not exist) or "blocks".

        "scan" is for files that are read by `scan` alone, in large pieces: with O_DIRECT where the file system supports
        it, since sequential data that is read once would only evict useful pages.
        "blocks" is "write" for files that are not read soon: large writes use O_DIRECT where the file system supports
        it, so every `pwrite` begins and ends at a multiple of DISK_BLOCK_BYTES (else ValueError).
        Open such a file once more, with "read" or "scan", to read it.
        A directory can be opened with "read", for its lock."""

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name exists."""

    def list(self, directory: str) -> list[str]:
        """Return the names in `directory`, sorted."""

    def make_dirs(self, path: str) -> None:
        """Create `path` and its parents where missing; each is durable in its own parent when this returns."""

    def rename(self, source: str, target: str) -> None:
        """Atomically give `source` the name `target`; durable after `sync_dir`."""

    def rename_new(self, source: str, target: str) -> None:
        """Rename as `rename` does, but raise FileExistsError where there is a `target`, whichever process made it and
        when."""

    def remove(self, path: str) -> None:
        """Unlink a file; durable after `sync_dir`."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""

    def free_bytes(self, path: str) -> int:
        """Return how many bytes may still be written to the file system that holds `path`."""

    def volume_bytes(self, path: str) -> int:
        """Return the size of the file system that holds `path`, in bytes."""


class Worker(Protocol):
    """One thread that runs blocking calls in the order given.  Not a pool."""

    def submit(self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `call` on the thread, then `done(result, error)` on the event loop."""

    def run(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run `call` on the thread and await its result."""

    async def close(self) -> None:
        """Finish what was submitted and end the thread."""


class Threads(Protocol):
    """Where workers come from."""

    def worker(self, name: str) -> Worker:
        """Start a worker."""


class Network(Protocol):
    """TCP.  Protocols given here implement `asyncio.BufferedProtocol`; a network that has
    none (the simulation) drives `get_buffer` and `buffer_updated` itself."""

    async def serve(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> asyncio.AbstractServer:
        """Listen; port 0 picks a free one."""

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        """Open a connection; raises OSError."""


@dataclass(frozen=True, slots=True)
class Env:
    """The ports together.

    `plain_network`: for connections without our TLS, such as those to bookies; None: `network` makes them, too."""

    clock: Clock
    random: Random
    files: Files
    threads: Threads
    network: Network
    traces: Traces | None = None  # None: nothing is traced
    plain_network: Network | None = None
