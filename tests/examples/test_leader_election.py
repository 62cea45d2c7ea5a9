"""Workers killed and stopped: one leads at a time, the next takes over, and writes of a former leader are refused."""

import contextlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import sarit
from examples.leader_election import worker
from examples.leader_election.worker import open_ledger
from sarit.client.sync import synchronizer
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

PROGRAM = Path(__file__).parents[2] / "examples" / "leader_election" / "worker.py"
LEASE_SECONDS = 1.0
TURNS = 4


class Worker:
    """One process; what it says goes to `said`."""

    def __init__(self, controller: str, name: str, said: "queue.Queue[tuple[str, str]]") -> None:
        self.name = name
        command = [sys.executable, str(PROGRAM), "--controller", controller, "--name", name]
        self.process = subprocess.Popen(
            [*command, "--lease", str(LEASE_SECONDS), "jobs/leader", "jobs/ledger"], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._listen, args=(said,), daemon=True).start()

    def _listen(self, said: "queue.Queue[tuple[str, str]]") -> None:
        for line in self.process.stdout:
            said.put((self.name, line.strip()))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def next_leader(said: "queue.Queue[tuple[str, str]]") -> tuple[str, int]:
    while True:
        name, line = said.get(timeout=HANG_SECONDS)
        found = re.fullmatch(r"\S+ leads with token (\d+)", line)
        if found:
            return name, int(found[1])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ledger_is_compacted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(worker, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(synchronizer, "COMPACTION_ODDS", 0)
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("jobs")

        def lead() -> None:
            with contextlib.suppress(sarit.SaritError), sarit.connect(node.controller) as mine:
                stopping.append(mine)
                worker.work(mine, "w0", "jobs/leader", "jobs/ledger", LEASE_SECONDS)

        stopping: list[sarit.Client] = []
        leading = threading.Thread(target=lead)
        leading.start()
        try:
            until(lambda: "ledger" in {name.stream for name in client.list_streams("jobs")})
            ledger = client.coordination.revisioned("jobs/ledger")
            until(lambda: ledger.oldest().offset > 0)
        finally:
            stopping[0].close()
            leading.join(HANG_SECONDS)


def test_killed_leader_is_replaced_and_stopped_one_is_refused(tmp_path) -> None:
    said: queue.Queue[tuple[str, str]] = queue.Queue()
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("jobs")
        ledger = open_ledger(client, "jobs/ledger")
        workers = {name: Worker(node.controller, name, said) for name in ("w0", "w1", "w2")}
        try:
            name, token = next_leader(said)
            tokens, booked = [token], 0
            for turn in range(TURNS):
                until(lambda booked=booked: ledger.fetch()["newest"] >= booked + 5)
                if turn % 2:
                    workers[name].end()
                    workers[name] = Worker(node.controller, name, said)
                else:
                    workers[name].process.send_signal(signal.SIGSTOP)
                stopped, (name, token) = name, next_leader(said)
                until(lambda name=name: ledger.fetch()["by"] == name)
                tokens.append(token)
                booked = ledger.state["newest"]
                if not turn % 2:
                    workers[stopped].process.send_signal(signal.SIGCONT)
            assert tokens == sorted(set(tokens))
            assert ledger.state["token"] == tokens[-1]
            before = ledger.state["newest"]
            ledger.update_unconditionally([b'{"token": 1, "by": "ghost"}'])
            after = ledger.fetch()
            assert after["refused"] >= 1
            assert after["newest"] >= before
            assert after["by"] == name
        finally:
            for worker in workers.values():
                worker.end()
