"""Continuous queries of nodes that are killed: every match once."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = int(os.environ.get("SARIT_CONTINUOUS_KILLS", "3"))
COLORS = ("red", "green", "blue")


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.1)


def matches(client: sarit.Client, output: str) -> list[tuple[str, str]]:
    found = []
    with client.reader(output, start="head", end="tail") as reader:
        for event in reader:
            document = json.loads(event)
            found.append((document["query"], document["event"]))
    return found


def test_every_match_once_although_the_node_is_killed_again_and_again(tmp_path: Path) -> None:
    chance = random.Random(7)
    node = RunningNode(tmp_path / "data")
    written: list[str] = []
    with node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/lines", segments=3)
        for output in ("s/a", "s/b"):
            client.create_stream(output, segments=2)
        for color, output in zip(COLORS, ("s/a", "s/b", "s/a"), strict=True):
            client.continuous.create("s/lines", color, color, output, with_event=True)
    for _ in range(KILLS):
        with node, sarit.connect(node.controller) as client:
            with client.writer("s/lines") as writer:
                for _ in range(200):
                    text = f"{chance.choice(COLORS)} {len(written)}"
                    writer.write(text, key=str(len(written)))
                    written.append(text)
            time.sleep(chance.uniform(0.2, 2.5))
            node.kill()
    with node, sarit.connect(node.controller) as client:
        expected = Counter((text.split()[0], text) for text in written)
        until(lambda: len(matches(client, "s/a") + matches(client, "s/b")) >= len(written))
        assert Counter(matches(client, "s/a") + matches(client, "s/b")) == expected
        assert {query for query, _ in matches(client, "s/b")} == {"green"}
