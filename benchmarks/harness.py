"""The harness of one run: a directory, servers and load generators as processes, and the noise of the machine."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from benchmarks.peers.process import Process

ROOT: Final = Path(__file__).resolve().parent.parent
LOAD_SECONDS: Final = 900.0
QUIET_SECONDS = 3.0
START_SECONDS: Final = 120.0  # a busy machine
FILLED_DISK_PART: Final = 0.7  # of the free disk, by one row
# FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_TOPDIR_FL of linux/fs.h.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_TOP_OF_HIERARCHY: Final = 0x00020000
PROBE_BYTES: Final = 64 << 10
PROBE_SYNCS: Final = 200
READY: Final = r"sarit is ready: controller (\S+:\d+), store (\S+:\d+)(?:.*, schema registry (\S+:\d+))?"


class LoadFailed(Exception):
    """A load generator ended without a result; the text has its last output."""


class Load:
    """A running load generator; it may print "ready", and prints one line of JSON at the end."""

    _started: ClassVar[list[Load]] = []

    def __init__(self, module: str, options: dict[str, Any], environment: dict[str, str] | None = None) -> None:
        """`environment` extends that of this process."""
        self._name = f"{module} {options}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.loads.{module}", json.dumps(options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | (environment or {}),
        )  # fmt: skip
        self._started.append(self)

    @classmethod
    def end_all(cls) -> None:
        """Stop all that still run: a row has failed, or Ctrl-C has ended it."""
        while cls._started:
            cls._started.pop().end()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Wait for "ready".  Raises LoadFailed."""
        assert self._process.stdout is not None
        came, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not came or self._process.stdout.readline().strip() != "ready":
            self.end()
            assert self._process.stderr is not None
            raise LoadFailed(f"{self._name} did not begin: {self._process.stderr.read()[-1500:]}")

    def result(self, seconds: float = LOAD_SECONDS) -> dict[str, Any]:
        """Its result.  Raises LoadFailed."""
        try:
            out, err = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise LoadFailed(f"{self._name} took more than {seconds:.0f} s") from None
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            raise LoadFailed(f"{self._name} ended with {self._process.returncode}: {err[-1500:]}")
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def end(self) -> None:
        """Stop it at once."""
        self._process.kill()
        self._process.wait()


def affordable_events(directory: Path, event_bytes: int, share: float = 1.0) -> int:
    """How many stored events of `event_bytes` a `share` of the disk that may be filled takes.

    Log and chunks hold an event twice for a while, and others use the disk, too."""
    directory.mkdir(parents=True, exist_ok=True)
    return int(shutil.disk_usage(directory).free * FILLED_DISK_PART * share / event_bytes)


def load(module: str, options: dict[str, Any], seconds: float = LOAD_SECONDS) -> dict[str, Any]:
    """Run a load generator to its end.  Raises LoadFailed."""
    return Load(module, options).result(seconds)


class Target(Protocol):
    """A system under load; clients connect to `endpoint`."""

    name: str
    endpoint: str

    def stop(self) -> None: ...


class SaritNode:
    """`sarit standalone` in a fresh directory, at its defaults.

    `endpoint` (of the controller) and `registry` (with `--registry on`) are set once it has started."""

    name = "Sarit"

    def __init__(self, directory: Path, processes: int = 1, *options: str, root: Path = ROOT) -> None:
        """`root`: of the work tree whose node it is."""
        self.root = root
        self.directory = directory
        self.processes = processes
        self.options = options
        self.report_path = directory / "report.json"
        self.endpoint = self.registry = ""
        self.start_seconds = 0.0
        self._process: Process | None = None

    def start(self, *, plain: bool = False) -> SaritNode:
        """Start it.  `plain`: by the `sarit` command, else by `benchmarks.node`, which reports its checkpoints."""
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = [
            "standalone", "--data-dir", str(self.directory / "data"), "--controller-port", "0", "--store-port", "0",
            *(("--processes", str(self.processes)) if self.processes > 1 else ()), *self.options,
        ]  # fmt: skip
        # An earlier version may need libraries that this one does not have any more.
        own = self.root / ".venv" / "bin" / "python"
        interpreter = own if own.exists() else Path(sys.executable)
        python = [str(interpreter), "-m", "benchmarks.node", str(self.report_path)]
        command = [str(interpreter.with_name("sarit"))] if plain else python
        started = time.monotonic()
        # The sources of this work tree, not the installed package: two versions can be compared.
        sources = os.pathsep.join((str(self.root / "src"), str(self.root)))
        # By the environment: earlier versions do not know the option.
        environment = {"PYTHONPATH": sources, "PYTHONDONTWRITEBYTECODE": "", "SARIT_HTTP_PORT": "off"}
        process = Process([*command, *arguments], self.directory, "node", environment)
        self._process = process
        process.wait_until(lambda: bool(process.printed(READY)), START_SECONDS)
        self.start_seconds = time.monotonic() - started
        found = process.printed(READY)
        assert found is not None
        self.endpoint = found[1]
        self.registry = found[3] or ""
        return self

    def memory_mb(self) -> float:
        """Resident memory in MB, of all its processes."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _pids(self) -> list[int]:
        assert self._process is not None
        parent = self._process.pid
        return [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]

    def child(self, name: str) -> int:
        """The process id of one of its processes, by name: `store-0`, `controller`."""
        return next(pid for pid in self._pids() if Path(f"/proc/{pid}/comm").read_text().strip() == name)

    def cpu_seconds(self) -> float:
        """Processor time used so far, in seconds, by all its processes."""
        ticks = 0
        for pid in self._pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def report(self, seconds: float = 10.0) -> dict[str, Any]:
        """The statistics of its flushers so far (see `benchmarks.node`), within `seconds`."""
        assert self._process is not None
        self.report_path.unlink(missing_ok=True)
        os.kill(self._process.pid, signal.SIGUSR1)
        end = time.monotonic() + seconds
        while not self.report_path.exists():
            if time.monotonic() > end:
                raise LoadFailed("the node gave no report")
            time.sleep(0.02)
        found: dict[str, Any] = json.loads(self.report_path.read_text())
        return found

    def stop(self) -> None:
        """Stop it, and delete its data."""
        if self._process is not None:
            self._process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> SaritNode:
        return self if self.endpoint else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _cpu() -> tuple[int, int, int]:
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(fields[:8]), fields[3] + fields[4], fields[7]


def scatter_on_disk(directory: Path) -> None:
    """Have ext4 place the subdirectories of `directory` in different block groups.

    Without a journal, ext4 skips inodes that were freed in the last minute (five, while their blocks are dirty), one by
    one, for each new file in their block group (`recently_deleted` in fs/ext4/ialloc.c): the thousands of files of one
    row cost 5 % of the processor time of the next.  The block group depends on the name of the directory, so each run
    of a row needs a new name."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = int.from_bytes(fcntl.ioctl(folder, _GET_FLAGS, bytes(8)), sys.byteorder)
        fcntl.ioctl(folder, _SET_FLAGS, (flags | _TOP_OF_HIERARCHY).to_bytes(8, sys.byteorder))
    except OSError:
        pass  # another file system
    finally:
        os.close(folder)


class OthersCpu:
    """CPU used by other processes and kernel threads from now on."""

    def __init__(self) -> None:
        self._machine, self._idle, _ = _cpu()
        self._ours = own_ticks()

    def percent(self) -> float:
        """Percent of all CPUs."""
        machine, idle, _ = _cpu()
        all_ticks = max(machine - self._machine, 1)
        busy = all_ticks - (idle - self._idle)
        ours = own_ticks() - self._ours
        return round(max(100 * (busy - ours) / all_ticks, 0.0), 1)


def own_ticks() -> int:
    """Ticks used so far by this process, its living descendants (a peer's server is one) and those it has reaped."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        ticks[pid] = sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(pid)
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += children.get(pid, [])
    return total


def noise(directory: Path) -> dict[str, float]:
    """Noise of the machine while nothing of ours runs: CPU of others in percent, steal, and the duration of a sync.

    Waits first for the file system to finish work of earlier rows (pages to write, blocks to free)."""
    os.sync()
    time.sleep(QUIET_SECONDS)
    total, idle, steal = _cpu()
    time.sleep(1.0)
    total2, idle2, steal2 = _cpu()
    spent = max(total2 - total, 1)
    path = directory / "probe"
    took: list[float] = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        block = os.urandom(PROBE_BYTES)
        os.pwrite(fd, bytes(PROBE_BYTES * PROBE_SYNCS), 0)
        os.fsync(fd)
        for number in range(PROBE_SYNCS):
            begun = time.perf_counter()
            os.pwrite(fd, block, number * PROBE_BYTES)
            os.fdatasync(fd)
            took.append(time.perf_counter() - begun)
    finally:
        os.close(fd)
        path.unlink()
    took.sort()
    return {
        "others_cpu_percent": round(100 * (1 - (idle2 - idle) / spent), 1),
        "steal_percent": round(100 * (steal2 - steal) / spent, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "fdatasync_64k_p50_ms": round(took[len(took) // 2] * 1000, 2),
        "fdatasync_64k_p99_ms": round(took[int(len(took) * 0.99)] * 1000, 2),
    }
