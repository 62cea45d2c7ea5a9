"""Starts `sarit` by forking a process that has imported it: a process of its own, without 0.4 s of imports.

The tests start hundreds of nodes and commands.  `start` is `subprocess.Popen` for these: real descriptors, arguments,
environment, directory, signals, exit codes.  A server is one process with one thread for each worker of pytest.  Its
children have no interpreter to end (`_end`).

With SARIT_TEST_FRESH=1, and where there is no `pidfd_open`, all are started by the script that users run.  What
commands import is tested in fresh processes (tests/unit/cli/test_imports.py).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import forwarded_sarit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
SARIT = str(Path(sys.executable).with_name("sarit"))
FRESH = bool(os.environ.get("SARIT_TEST_FRESH")) or not hasattr(os, "pidfd_open")
# What commands and nodes import on use.  Not what starts threads: they do not live on in a fork.
PRELOADED = (
    "encodings.idna",
    "sarit.admin.metrics",
    "sarit.admin.rest.routes",
    "sarit.admin.server",
    "sarit.client.aio",
    "sarit.client.blocking.client",
    "sarit.client.blocking.connection",
    "sarit.env.event_loop",
    "sarit.env.real_files",
    "sarit.index.sqlite",
    "sarit.log.local",
    "sarit.process.observation.console_view",
    "sarit.process.observation.group_lag",
    "sarit.process.observation.loop_delay",
    "sarit.process.observation.registry_view",
    "sarit.process.own_client",
    "sarit.process.query_runner",
    "sarit.process.registry_role",
    "sarit.process.reload",
    "sarit.process.settings",
    "sarit.process.standalone",
    "sarit.process.worker_role",
    "sarit.registry.confluent.routes",
    "sarit.registry.pravega.routes",
    "sarit.registry.registry",
    "sarit.registry.statistics",
    "sarit.rpc.in_process",
    "ssl",
    "sqlite3",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
)
# What commands and nodes for tables and files import beside that: another server has it, as it makes a fork slower.
TABULAR = ("duckdb", "pyarrow.dataset", "pyarrow.parquet", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow",
           "sarit.sql.engine", "sarit.sql.scans")  # fmt: skip
_TABULAR_WORDS = {"query", "lake", "export", "import", "--catalogs"}
# These libraries start threads when they are imported, unless a variable forbids it.
_WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_LINE_BYTES = 1 << 20
STOP_SECONDS = 5

_lock = threading.Lock()
_servers: dict[bool, _Server] = {}  # by whether they have the libraries for tables


def start(command: Sequence[Any], **options: Any) -> subprocess.Popen[Any] | Forked:
    """Run `command`: SARIT, or Python with a module, a program or `-c`.  The options are those of `subprocess.Popen`
    that `Forked` has."""
    words = list(map(str, command))
    assert words[0] in (SARIT, sys.executable), words[0]
    fresh = FRESH or "LD_PRELOAD" in (options.get("env") or ())
    return subprocess.Popen(words, **options) if fresh else Forked(words, **options)


def run(
    command: Sequence[Any], *, timeout: float, input: Any = None, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run `command` until it has ended, and take its output: `subprocess.run` with capture_output."""
    pipe = subprocess.PIPE
    with start(command, **{"stdin": pipe, "stdout": pipe, "stderr": pipe, **options}) as process:
        try:
            out, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.wait(), out, errors)
    if check:
        done.check_returncode()
    return done


def on_path(directory: Path) -> tuple[str, dict[str, str], tuple[int, ...]]:
    """Return a path on which a shell finds `sarit` and `python`, and the variables and descriptors that the shell
    needs: these commands of the shell are forked, too.  `directory` gets two files."""
    path = f"{Path(SARIT).parent}{os.pathsep}{os.environ['PATH']}"
    if FRESH:
        return path, {}, ()
    for name, program in (("sarit", SARIT), ("python", sys.executable)):
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{forwarded_sarit.__file__}" "{program}" "$@"\n')
        script.chmod(0o755)
    controls = tuple(_running_server(tabular).control for tabular in (False, True))
    said = json.dumps([sorted(_TABULAR_WORDS), *controls])
    return f"{directory}{os.pathsep}{path}", {forwarded_sarit.CONTROLS: said}, controls


class Forked:
    """A process that the server has forked, with what tests need of `subprocess.Popen`."""

    def __init__(
        self, args: Sequence[str], *, stdin: Any = None, stdout: Any = None, stderr: Any = None, text: bool = False,
        env: Mapping[str, str] | None = None, cwd: str | Path | None = None,
    ) -> None:  # fmt: skip
        self.args = list(args)
        self.returncode: int | None = None
        job = {"argv": self.args, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        with ExitStack() as theirs:
            ends = [_ends(asked, at, theirs) for at, asked in enumerate((stdin, stdout, stderr))]
            if stderr == subprocess.STDOUT:
                ends[2] = ends[1][0], None
            tabular = not _TABULAR_WORDS.isdisjoint(self.args)
            self._ending, self.pid = _running_server(tabular).fork(job, [child for child, _ in ends])
        mode = "" if text else "b"
        self.stdin, self.stdout, self.stderr = (
            None if mine is None else open(mine, ("w" if at == 0 else "r") + mode)  # noqa: SIM115
            for at, (_, mine) in enumerate(ends)
        )

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or the signal that ended it as a negative number.  Raises TimeoutExpired."""
        if self.returncode is None:
            self._ending.settimeout(timeout)
            try:
                status = _number(self._ending)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._ending.close()
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def poll(self) -> int | None:
        """As `wait`, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Give it `input`, take its output, wait for its end.  Raises TimeoutExpired."""
        with ThreadPoolExecutor(2) as threads:
            out, errors = (pipe and threads.submit(pipe.read) for pipe in (self.stdout, self.stderr))
            if self.stdin is not None:
                with suppress(BrokenPipeError), self.stdin:  # it has ended before it read all
                    if input:
                        self.stdin.write(input)
            try:
                self.wait(timeout)
            except BaseException:
                self.kill()  # otherwise the threads read on
                raise
        return out and out.result(), errors and errors.result()

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.wait()


def _ends(asked: Any, at: int, theirs: ExitStack) -> tuple[int, int | None]:
    """The descriptor of the child and, of a pipe, ours.  `theirs` closes what the child alone needs."""
    if asked == subprocess.PIPE:
        reading, writing = os.pipe()
        child, mine = (reading, writing) if at == 0 else (writing, reading)
        theirs.callback(os.close, child)
        return child, mine
    if asked == subprocess.DEVNULL:
        child = os.open(os.devnull, os.O_RDWR)
        theirs.callback(os.close, child)
        return child, None
    if asked is None or asked == subprocess.STDOUT:
        return at, None
    return (asked if isinstance(asked, int) else asked.fileno()), None


class _Server:
    """The server's end of this process."""

    def __init__(self, tabular: bool) -> None:
        self.pid = os.getpid()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), *(TABULAR if tabular else ())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "LC_ALL": "C.UTF-8", **_WITHOUT_THREADS},
            )  # fmt: skip
        atexit.register(self.stop)

    @property
    def control(self) -> int:
        """The descriptor that a job is asked for at."""
        return self._control.fileno()

    def fork(self, job: dict[str, Any], descriptors: list[int]) -> tuple[socket.socket, int]:
        """The process id, and what its end is read from."""
        ours, theirs = socket.socketpair()
        with theirs, _lock:
            socket.send_fds(self._control, [b"j"], [theirs.fileno(), *descriptors])
        ours.sendall(json.dumps(job).encode() + b"\n")
        return ours, _number(ours)

    def stop(self) -> None:
        """It ends when its last child has."""
        if os.getpid() == self.pid:
            self._control.close()
            with suppress(subprocess.TimeoutExpired):  # a test has left a child behind
                self._process.wait(STOP_SECONDS)


def _running_server(tabular: bool) -> _Server:
    with _lock:
        found = _servers.get(tabular)
        if found is None or found.pid != os.getpid():
            found = _servers[tabular] = _Server(tabular)
        return found


def _number(connection: socket.socket) -> int:
    """The number on the next line; a process that ends at once has sent a second one by now.  Raises EOFError."""
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            raise EOFError("the fork server has ended")
        data += piece
    return int(data)


def _line(connection: socket.socket) -> bytes:
    """All of a line that comes at once.  Raises EOFError: the server is gone."""
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(_LINE_BYTES)
        if not piece:
            raise EOFError("the fork server has ended")
        data += piece
    return data


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request until the tests end.  Returns in the child, with what it is to do."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        asked = True
        while asked or running:
            for key, _ in ready.select():
                if key.fileobj is control:
                    job = _fork_for(control, running)
                    if job is None:
                        asked = False
                        ready.unregister(control)
                    elif "argv" in job:
                        return job
                    else:
                        ready.register(job["pidfd"], selectors.EVENT_READ)
                    continue
                pidfd = key.fd
                ready.unregister(pidfd)
                os.close(pidfd)
                pid, answers = running.pop(pidfd)
                with answers:
                    _report(answers, os.waitpid(pid, 0)[1])
    os._exit(0)


def _fork_for(control: socket.socket, running: dict[int, tuple[int, socket.socket]]) -> dict[str, Any] | None:
    data, descriptors, _, _ = socket.recv_fds(control, 1, 4)
    if not data:
        return None
    answers = socket.socket(fileno=descriptors[0])
    job: dict[str, Any] = json.loads(_line(answers))
    pid = os.fork()
    if pid == 0:
        return {**job, "descriptors": descriptors[1:]}
    for descriptor in descriptors[1:]:
        os.close(descriptor)
    pidfd = os.pidfd_open(pid)
    running[pidfd] = pid, answers
    _report(answers, pid)
    return {"pidfd": pidfd}


def _report(answers: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody waits for it
        answers.sendall(b"%d\n" % number)


def _become(job: dict[str, Any]) -> None:
    """What a new process has of its own."""
    for at, descriptor in enumerate(job["descriptors"]):
        os.dup2(descriptor, at)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    errors = sys.stdout.errors
    sys.stdin = open(0, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _execute(program: str, *arguments: Any) -> None:
    if program == SARIT:
        from sarit.cli import main

        sys.argv, sys.path[0] = [program, *arguments], str(Path(SARIT).parent)
        main.main()
        return
    first, *arguments = arguments[arguments[0] == "-u" :]
    if first == "-c":
        code, *arguments = arguments
        sys.argv, sys.path[0] = ["-c", *arguments], ""
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv, sys.path[0] = arguments, os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [first, *arguments], str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from sarit.cli import main

    for place, _ in main._NOUNS.values():
        importlib.import_module(place.partition(":")[0])
    for name in (*PRELOADED, *sys.argv[2:]):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread does not live on in a fork"
    gc.collect()
    gc.freeze()
    job = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(job)
    code = 0
    try:
        _execute(*job["argv"])
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        code = error.code or 0
    _end(code)


def _end(code: int) -> None:
    """End as an interpreter does, but for freeing what was imported: that touches, and so copies, all that the server
    shares with its children, and was four fifths of what a short command cost."""
    threading._shutdown()
    atexit._run_exitfuncs()
    gc.collect()  # of what is new: it says what was never awaited or closed
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it
            if stream is not None:
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _main()
