"""A committer dies by SIGKILL before and after each of its calls; each event is in the table once all the same.

At every snapshot the rows are the stream's events between the snapshot's cuts, by position, content and checksum.  The
default suite kills once at each point, `make lake-kills` 40 times."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.lake_child import EVENTS, POINTS
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("SARIT_LAKE_KILLS", "1"))
# These are passed once in the life of a table: each kill there has a table of its own.
ONCE = ("before create", "after create")


class Children:
    """Processes that commit, of one node and one catalog."""

    def __init__(self, node: RunningNode, directory: Path, catalog: dict[str, str] | None = None) -> None:
        self._log = (directory / "children.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.lake_child"], cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        self.directory = directory
        self.run = 0
        usual = {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}"}
        self._usual = {"controller": node.controller, "directory": str(directory), "catalog": catalog or usual}

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def ask(self, do: str, table: str = "orders", **more: Any) -> dict[str, Any]:
        """Carry out a command in a child."""
        self.run += 1
        asked = {
            "do": do, "table": table, "run": self.run, "point": "", "nth": 0, "events": EVENTS, "scale": 0,
            "columns": 0, "target": 300, **self._usual, **more,
        }  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def judged(self, table: str = "orders") -> dict[str, Any]:
        """Compare a table with the stream."""
        answer = self.ask("judge", table)
        assert answer["status"] == 0, (self.directory / "children.log").read_text()[-4000:]
        found: dict[str, Any] = answer["found"]
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as running:
        yield running


def test_committer_killed_at_every_step_commits_each_event_once(node: RunningNode, tmp_path: Path) -> None:
    chance = random.Random(7)
    killed = dict.fromkeys(POINTS, 0)
    with Children(node, tmp_path) as children:
        for turn in range(KILLS):
            for place, point in enumerate(POINTS):
                columns = turn + (place >= POINTS.index("before evolve"))
                table = f"t{turn}" if point in ONCE else "orders"
                more = {"scale": chance.choice((0, 0, 0, 4, 5)) if turn % 4 == 1 and point == "before load" else 0}
                nth = 1 if point in ONCE else chance.choice((1, 1, 2, 3))
                answer = children.ask("commit", table, point=point, nth=nth, columns=columns, **more)
                if answer["status"] == 0 and nth > 1:
                    answer = children.ask("commit", table, point=point, nth=1, columns=columns)
                assert answer["status"] in (0, -signal.SIGKILL), (tmp_path / "children.log").read_text()[-4000:]
                killed[point] += answer["status"] == -signal.SIGKILL
        assert children.ask("commit")["status"] == 0, (tmp_path / "children.log").read_text()[-4000:]
        found = children.judged()
        for turn in range(KILLS):
            assert children.ask("commit", f"t{turn}", events=0)["status"] == 0
            children.judged(f"t{turn}")
    print(found, killed)
    assert found["dead"] > 0
    assert found["columns"] == KILLS + 3
    assert [point for point, count in killed.items() if count < KILLS] == []


def test_committers_that_run_at_once_commit_each_event_once(node: RunningNode, tmp_path: Path) -> None:
    chance = random.Random(11)
    with Children(node, tmp_path) as children:
        for _ in range(max(2, KILLS // 4)):
            # Each takes the job from the others again and again.  Some die.
            for _ in range(3):
                point = chance.choice(("", "", *POINTS))
                children.ask("start", point=point, nth=chance.randrange(1, 6), target=200)
            statuses = children.ask("wait")["statuses"]
            assert all(status in (0, signal.SIGKILL) for status in statuses), (tmp_path / "children.log").read_text()[
                -4000:
            ]
        assert children.ask("commit")["status"] == 0
        found = children.judged()
    print(found)
    assert found["events"] >= EVENTS
