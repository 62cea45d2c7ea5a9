"""The node of `benchmarks.metrics_cost`: in some blocks of its work it counts, in others it does not.

`python -m benchmarks.metrics_node PLAN.json REPORT.json standalone …` takes the arguments of `sarit`.

A block is a number of events that became durable.  Its figure is the processor time of the event loop's thread for each
event: all counting is on that thread.  Blocks take milliseconds and follow each other in an order that is mirrored
(A B C C B A), so whatever the machine does besides, it does to all alike.

What does not count is the same code without the statements of STATEMENTS: they are taken out of the source, and the
functions get the other code between two blocks.  Connections, segments and caches stay.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import json
import os
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.exposition import Exposition
from sarit.cli.main import main
from sarit.log.writer import LocalLog
from sarit.process import standalone
from sarit.store.container.group_commit import GroupCommit
from sarit.store.container.metadata_cache import MetadataCache
from sarit.store.server.append_handler import AppendHandler
from sarit.store.server.connection import StoreConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AsyncExitStack
    from types import CodeType, FunctionType

    from sarit.env.ports import Env
    from sarit.process.observation.metrics import Metrics
    from sarit.process.ownership.claims import DirectoryClaim
    from sarit.process.security import Security
    from sarit.process.settings import NodeConfig

# On the way of an append: how the statements begin that are there for metrics alone.
STATEMENTS: Final[Mapping[Callable[..., Any], tuple[str, ...]]] = {
    StoreConnection.buffer_updated: ("self._statistics.received_bytes +=",),
    StoreConnection._flush: ("self._statistics.sent_bytes +=",) * 2,
    AppendHandler.append: ("if self._sampling.due:",),
    AppendHandler.acknowledged: ("if append.arrival is not None:",),
    MetadataCache.find: ("self._statistics.metadata_hits +=", "self._statistics.metadata_misses +="),
    GroupCommit._durable: ("self._count(",),
    LocalLog._finished: (
        "statistics =", "statistics.frames +=", "statistics.sync_seconds.observe(", "statistics.group_bytes.observe(",
    ),
}  # fmt: skip
ON, OFF, AGAIN = VARIANTS = ("on", "off", "again")  # `again` counts, too: what differs from `on` is noise
WARM_UP_ROUNDS: Final = 3
POLL_SECONDS: Final = 0.001
SCRAPES: Final = 50


def code_without(function: Callable[..., Any], beginnings: tuple[str, ...]) -> CodeType:
    """The code of a function without the statements that begin so; each must be there once."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    cut = _Cut(beginnings)
    tree = ast.fix_missing_locations(cut.visit(tree))
    assert sorted(cut.found) == sorted(beginnings), (function, cut.found)
    names: dict[str, Any] = {}
    exec(compile(tree, f"<{function.__qualname__} without {len(beginnings)} statements>", "exec"),
         function.__globals__, names)  # fmt: skip
    code: CodeType = names[function.__name__].__code__
    return code


class _Cut(ast.NodeTransformer):
    def __init__(self, beginnings: tuple[str, ...]) -> None:
        self._beginnings = beginnings
        self.found: list[str] = []

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.stmt):
            text = ast.unparse(node)
            for beginning in self._beginnings:
                if text.startswith(beginning):
                    self.found.append(beginning)
                    return ast.Pass()
        return super().generic_visit(node)


def variants() -> dict[str, list[tuple[FunctionType, CodeType]]]:
    """Of each variant, the functions with their code."""
    functions: list[Any] = list(STATEMENTS)
    return {
        ON: [(function, function.__code__) for function in functions],
        OFF: [(function, code_without(function, STATEMENTS[function])) for function in functions],
        AGAIN: [(function, code_without(function, ())) for function in functions],
    }


@dataclass
class Alternation:
    """Runs the rounds on a node that has load."""

    node: standalone.Node
    metrics: Metrics
    block_events: int
    rounds: int
    report: Path
    # Of each round, microseconds of processor time for an event, by variant.
    found: list[dict[str, list[float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._codes = variants()
        self._blocks = self._plan()
        self._round: dict[str, list[float]] = {}
        self._variant = ON
        self._events, self._seconds = self._appended(), time.thread_time()

    def _plan(self) -> Iterator[list[str]]:
        orders = itertools.cycle(itertools.permutations(VARIANTS))
        for order in itertools.islice(orders, WARM_UP_ROUNDS + self.rounds):
            yield [*order, *reversed(order)]

    def start(self) -> None:
        """Begin when there is load."""
        self._left: list[str] = []
        self._next()
        self._poll()

    def _appended(self) -> int:
        return sum(
            segment.events
            for container in self.node.store.serving()
            for segment in container.state.segments.values()
            if not segment.is_table
        )

    def _poll(self) -> None:
        events = self._appended() - self._events
        if events >= self.block_events:
            cost = (time.thread_time() - self._seconds) / events * 1e6
            self._round.setdefault(self._variant, []).append(cost)
            if not self._next():
                return
        asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    def _next(self) -> bool:
        if not self._left:
            if self._round:
                self.found.append(self._round)
            self._round = {}
            self._left = next(self._blocks, [])
            if not self._left:
                self._end()
                return False
        self._variant = self._left.pop(0)
        for function, code in self._codes[self._variant]:
            function.__code__ = code
        self._events, self._seconds = self._appended(), time.thread_time()
        return True

    def _end(self) -> None:
        scrape, took = Exposition(self.metrics.samples), []
        for _ in range(SCRAPES):
            began = time.thread_time()
            text = scrape()
            took.append(time.thread_time() - began)
        found = {"rounds": self.found[WARM_UP_ROUNDS:], "scrape_seconds": sorted(took)[SCRAPES // 2],
                 "series": sum(not line.startswith(b"#") for line in text.splitlines())}  # fmt: skip
        new = self.report.with_suffix(".new")
        new.write_text(json.dumps(found))
        os.rename(new, self.report)


def watch(plan: Path, report: Path) -> None:
    """Let the node that is started from here on run the rounds of a plan."""
    planned = json.loads(plan.read_text())
    plain = standalone.open_node

    async def open_node(
        config: NodeConfig, env: Env, claim: DirectoryClaim | None = None, metrics: Metrics | None = None,
        security: Security | None = None, closing: AsyncExitStack | None = None,
    ) -> standalone.Node:  # fmt: skip
        assert metrics is not None
        node = await plain(config, env, claim, metrics, security, closing)
        run = Alternation(node, metrics, planned["block_events"], planned["rounds"], report)
        asyncio.get_running_loop().call_later(planned["after_seconds"], run.start)
        return node

    standalone.open_node = open_node


if __name__ == "__main__":
    watch(Path(sys.argv.pop(1)), Path(sys.argv.pop(1)))
    main()
