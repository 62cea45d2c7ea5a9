"""Runs many seeds, in one process or several, and sums up the results."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from simulation.kill_matrix import PREFIX, empty_cells
from simulation.options import options_of
from simulation.run import run_seed
from simulation.stopping import leave_signals_to_parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from simulation.run import Result

_SHOWN_VIOLATIONS: Final = 10
# Of the seeds of a proof, every so many-th has two or three stores.
_PROOF_EVERY: Final = 4
# Probes that count injected faults; the others are places that the code reached.
FAULTS: Final = (
    "kill", "power_cut", "crash_point", "connection_broken", "connection_stalled", "storage_outage", "index_failure",
    "sync_error", "write_error", "disk_full", "wall_clock_jump", "writer_gave_up_connection", "writer_crashed",
    "stream_writer_crashed", "zombie_chunk", "move_commanded", "container_revoked", "store_cut_off", "store_frozen",
    "controller_frozen", "struck", "bookie_died", "bookie_stopped", "bookie_read_only", "bookie_busy", "bookie_slow",
    "bookie_cut_off", "zookeeper_connection_lost", "zookeeper_behind", "zookeeper_server_cut_off", "zookeeper_away",
    "zookeeper_stopped", "zookeeper_mute", "zookeeper_session_ended", "network_cut", "cut_one_way",
)  # fmt: skip


def replay_command(seed: int, mutants: Sequence[str] = (), stores: int = 0, on_bookies: bool = False) -> str:
    """The command that runs a seed again."""
    patched = "".join(f" --mutant {name}" for name in mutants)
    several = f" --stores {stores}{' --bookkeeper' if on_bookies else ''}" if stores else ""
    return f"python -m simulation --seed {seed}{several}{patched}"


def explain(result: Result, mutants: Sequence[str] = ()) -> str:
    """Options, the last lines of the trace, the violations, and the command to replay."""
    seed = result.options.seed
    lines = [f"seed {seed}: {len(result.violations)} violations"]
    lines += [f"    {line}" for line in result.options.lines()]
    lines += result.trace.last
    lines += [f"  {violation}" for violation in result.violations[:_SHOWN_VIOLATIONS]]
    options = result.options
    return "\n".join([*lines, f"replay: {replay_command(seed, mutants, options.stores, bool(options.bookies))}"])


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of one seed, picklable.  `seconds`: processor time."""

    seed: int
    violations: tuple[str, ...]
    explanation: str
    acked_events: int
    steps: int
    virtual_seconds: float
    seconds: float
    probes: dict[str, int]


def summarize(seed: int, mutants: Sequence[str] = (), stores: int = 0, on_bookies: bool = False) -> Summary:
    """Run one seed."""
    started, drawn = time.process_time(), options_of(seed, stores, on_bookies=on_bookies)
    try:
        result = run_seed(seed, mutants, drawn)
    except Exception as error:  # a bug of the harness: report it with its seed
        text = f"harness: {type(error).__name__}: {error}"
        options = "\n".join(drawn.lines())
        seconds = time.process_time() - started
        return Summary(
            seed,
            (text,),
            f"{options}\n{text}\n{replay_command(seed, mutants, stores, on_bookies)}",
            0,
            0,
            0.0,
            seconds,
            {},
        )
    return Summary(
        seed,
        tuple(result.violations[:_SHOWN_VIOLATIONS]),
        explain(result, mutants) if result.violations else "",
        result.acked_events,
        result.outcome.steps,
        result.outcome.virtual_seconds,
        time.process_time() - started,
        dict(result.trace.probes),
    )


def summarize_proof(seed: int) -> Summary:
    """Run one seed of a proof, some of which have several stores."""
    return summarize(seed, stores=stores_of_proof(seed))


def summarize_pinned(pinned: tuple[int, int]) -> Summary:
    """Run one seed with its number of stores."""
    return summarize(pinned[0], stores=pinned[1])


def stores_of_proof(seed: int) -> int:
    """How many stores a seed of a proof has; 0: one node."""
    return 0 if seed % _PROOF_EVERY else 2 + seed // _PROOF_EVERY % 2


def forget_modules() -> None:
    """Leave what is imported by now out of the garbage collection before each seed.  For a process of seeds alone."""
    gc.collect()
    gc.freeze()


def _begin_process() -> None:
    leave_signals_to_parent()
    forget_modules()


def summaries(
    seeds: Iterable[int], mutants: Sequence[str] = (), processes: int = 1, stores: int = 0, on_bookies: bool = False
) -> Iterator[Summary]:
    """Results in the order of the seeds: an interrupted run has done the first ones."""
    run = partial(summarize, mutants=tuple(mutants), stores=stores, on_bookies=on_bookies)
    if processes == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _begin_process) as pool:
        yield from pool.imap(run, seeds)


@dataclass(slots=True)
class Totals:
    """Sums over seeds."""

    seeds: int = 0
    acked_events: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    probes: Counter[str] = field(default_factory=Counter)
    reached_by: Counter[str] = field(default_factory=Counter)
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, summary: Summary) -> None:
        """Count one more."""
        self.seeds += 1
        self.acked_events += summary.acked_events
        self.steps += summary.steps
        self.virtual_seconds += summary.virtual_seconds
        self.seconds += summary.seconds
        self.probes.update(summary.probes)
        self.reached_by.update(summary.probes.keys())
        if summary.violations:
            self.broken[summary.seed] = summary.violations[0]

    def line(self) -> dict[str, Any]:
        """For the ledger; processor time is the sum over all processes."""
        seconds = max(self.seconds, 1e-9)
        return {
            "seeds": self.seeds,
            "virtual_hours": round(self.virtual_seconds / 3600, 2),
            "cpu_seconds": round(self.seconds, 1),
            "steps": self.steps,
            "steps_per_second": round(self.steps / seconds),
            "virtual_to_real": round(self.virtual_seconds / seconds, 1),
            "acked_events": self.acked_events,
            "faults": {name: self.probes[name] for name in FAULTS if self.probes[name]},
            "reached": {
                name: self.probes[name]
                for name in sorted(self.probes)
                if name not in FAULTS and not name.startswith(PREFIX)
            },
            "empty_cells": [cell.probe.removeprefix(PREFIX) for cell in empty_cells(self.probes)],
            "violations": {str(seed): text for seed, text in sorted(self.broken.items())},
        }
