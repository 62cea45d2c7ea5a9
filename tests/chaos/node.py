"""The node under test: a real process with proxies in front of it, which can be killed, stopped and given a bad disk or
clock."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.peers.ports import free_ports
from tests.chaos.proxy import Proxy
from tests.nodes import SARIT, RunningNode

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

# Clients get the second address, where the proxies listen on the ports of the first.
NODE_HOST: Final = "127.0.0.1"
CLIENT_HOST: Final = "127.0.0.2"
# Log lines that no fault explains.  (A failed sync is logged as one line, without a traceback.)
_ALARMS: Final = (" CRITICAL ", "Traceback (most recent call last)", "unexpected error", "by a bug", "never retrieved")
_FAKE_TIME: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")


class ChaosNode(RunningNode):
    """A node that comes back on the same ports, as another process each time."""

    def __init__(
        self, directory: Path, *, fake_time: bool = False, options: Sequence[str] = (), sarit: Sequence[str] = (SARIT,)
    ) -> None:
        self._ports = free_ports(2)
        self.directory = directory
        self.proxies = [Proxy(CLIENT_HOST, port, NODE_HOST) for port in self._ports]
        self.address = f"{CLIENT_HOST}:{self._ports[0]}"
        self.starts = 0
        self._clock = directory.with_name(directory.name + ".clock")
        environment = dict(os.environ)
        library = fake_time_library() if fake_time else None
        if library is not None:
            self._clock.write_text("+0")
            environment |= {
                "LD_PRELOAD": library,
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_CACHE_DURATION": "1",
            }
        plain = ["--host", NODE_HOST, "--advertise", CLIENT_HOST, "--containers", "2", "--log-level", "warning"]
        ports = ["--controller-port", str(self._ports[0]), "--store-port", str(self._ports[1])]
        super().__init__(directory, *plain, *options, *ports, sarit=sarit, env=environment)
        self._plain = list(self._command)

    async def begin(self, prefix: Sequence[str] = ()) -> None:
        """Start a process, under `prefix` when there is one.  Raises AssertionError."""
        self._command = [*prefix, *self._plain]
        self.starts += 1
        await asyncio.to_thread(self.start)

    async def crash(self) -> None:
        """kill -9."""
        await asyncio.to_thread(self.kill)

    async def end(self) -> None:
        """SIGTERM, as an operator does.  Raises AssertionError when it does not end, or not well."""
        code = await asyncio.to_thread(self.stop)
        assert code == 0, f"the node ended with {code}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def jump(self, seconds: int) -> None:
        """Set its wall clock ahead or back against the machine's."""
        self._clock.write_text(f"{seconds:+d}")

    def alarms(self) -> list[str]:
        """Lines of its log that no fault explains."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return [line[:400] for line in lines if any(alarm in line for alarm in _ALARMS)]

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-6000:] if self._log.exists() else ""


def inject(call: str, fault: str) -> list[str]:
    """A prefix that makes a system call fail; the traced process keeps its process id."""
    return ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}"]


@functools.cache
def can_inject() -> bool:
    """Whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run([*inject("fdatasync", "error=EIO:when=1+1"), "true"], capture_output=True).returncode == 0


@functools.cache
def fake_time_library() -> str | None:
    """libfaketime, where the machine has it."""
    for pattern in _FAKE_TIME:
        for found in sorted(Path("/").glob(pattern.removeprefix("/"))):
            return str(found)
    return None


class SmallDisk:
    """A file system in memory, which can be filled."""

    def __init__(self, directory: Path, mebibytes: int = 1200) -> None:
        self.directory = directory
        self._options = f"size={mebibytes}m"

    def __enter__(self) -> SmallDisk:
        self.directory.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", self._options, "tmpfs", str(self.directory)], check=True, capture_output=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.directory)], check=True)

    def fill(self, leave_bytes: int) -> None:
        """Fill it up to `leave_bytes` of free space."""
        status = os.statvfs(self.directory)
        size = status.f_bavail * status.f_frsize - leave_bytes
        if size > 0:
            with (self.directory / "ballast").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def empty(self) -> None:
        """Free the space again."""
        (self.directory / "ballast").unlink(missing_ok=True)


@functools.cache
def can_mount() -> bool:
    """Whether a file system in memory can be mounted here."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    probe = Path(f"/tmp/sarit-chaos-probe-{os.getpid()}")
    try:
        with SmallDisk(probe, 1):
            return True
    except (subprocess.CalledProcessError, OSError):
        return False
    finally:
        if probe.exists():
            probe.rmdir()
