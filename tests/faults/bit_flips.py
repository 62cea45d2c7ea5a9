"""Flips one bit of one byte of a data directory, opens it, and reads everything.

    make bit-flips                                 # the same as --all
    python -m tests.faults.bit_flips --all         # every byte of every file
    python -m tests.faults.bit_flips --step 50     # every 50th byte

Each flip must have one of two outcomes: everything is served as it was written, or something is refused with an error
of Sarit that says what is damaged.  Never other bytes, never less, never an assertion, a traceback or a hang.  `sarit
verify` is run on directories that serve less than everything: it must find damage there.

What `--all` leaves out, and why:

- All bits of the small files that are read as text or compared as a whole (`ALL_BITS`), one bit of each other byte:
  what protects these is a checksum, to which all bits of a byte are alike.
- Long runs of zeros: padding and preallocated blocks.  A byte there differs from the next one only in its place in its
  block and its distance to data.  So the beginning of each block and both ends of a run are tried byte by byte, and
  between them every `ZERO_STEP`th.
- Recycled log files: nothing reads their content.  Every `ZERO_STEP`th byte is tried.

Every flip opens a fresh copy of the directory, with the node's own log, index, storage and store.  They run in this
process, and the calls of their threads in its loop (`DirectThreads`): nothing here depends on the order of threads, and
a flip takes half as long.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.env.real import real_env
from sarit.ops.verify.directory import open_directory, verify
from sarit.ops.verify.repair import apply, plan_repair
from simulation.crashes.machine import DirectThreads
from tests.faults import small_data

if TYPE_CHECKING:
    from collections.abc import Iterator

HANG_SECONDS = 60.0
EVENT_BYTES = 300
# One for all flips: it remembers which directories above the data directory are durable.
ENV = replace(real_env(), threads=DirectThreads())
# Between two lines of the progress; and after so long without one the process ends with the stacks of all threads.
PROGRESS_SECONDS = 10.0
STUCK_SECONDS = 900.0
# SQLite's index of its WAL: shared memory of a process that is gone, made again.
NOT_STORED = ("-shm", ".lock", "/lock")
ALL_BITS = ("/meta", "/last-start", "/storage-marked")
BLOCK_BYTES = 4096
# A run of zeros of this length is sampled; so many bytes at its ends and at the beginning of each block are not.
ZERO_RUN_BYTES, EDGE_BYTES = 256, 64
# Prime: the bytes that are tried lie differently in each block.
ZERO_STEP = 97


@dataclass(frozen=True)
class Place:
    """One bit of a file of the directory; `name` begins with a slash."""

    name: str
    byte: int
    bit: int


@dataclass
class Outcomes:
    """What the flips of one run did.  `counts` by (kind of file, outcome)."""

    flips: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def total(self, outcome: str) -> int:
        """How many flips of any kind of file had this outcome."""
        return sum(count for (_, what), count in self.counts.items() if what == outcome)


class Silent:
    """A progress that nobody sees."""

    def begin(self, label: str, length: int) -> None:
        """Nothing."""

    def add(self, length: int) -> None:
        """Nothing."""


class Progress:
    """Prints how many flips are done, how fast they are, and how long the rest takes."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._total = total
        self._shown = shown
        self._began = self._printed = time.monotonic()

    def note(self, done: Outcomes, at: str) -> None:
        """A flip is done; print a line if the last one is old enough."""
        now = time.monotonic()
        if not self._shown or now < self._printed + PROGRESS_SECONDS:
            return
        self._printed = now
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        rate = done.flips / (now - self._began)
        left = (self._total - done.flips) / rate / 60
        print(
            f"{done.flips} of {self._total} flips, {rate:.0f}/s, {left:.1f} min left, {len(done.wrong)} wrong; at {at}",
            flush=True,
        )


class Directory:
    """A data directory in memory, written for each flip."""

    def __init__(self, path: Path, original: Path) -> None:
        self.path = path
        self._directories = [found.relative_to(original) for found in sorted(original.rglob("*")) if found.is_dir()]
        self.files = {
            f"/{found.relative_to(original)}": found.read_bytes()
            for found in sorted(original.rglob("*"))
            if found.is_file()
        }

    def write(self, place: Place) -> None:
        """Write the directory with one bit flipped."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        for directory in self._directories:
            (self.path / directory).mkdir()
        for name, content in self.files.items():
            if name == place.name:
                flipped = bytearray(content)
                flipped[place.byte] ^= 1 << place.bit
                content = bytes(flipped)
            (self.path / name[1:]).write_bytes(content)


def kind_of(name: str) -> str:
    """What is stored in a file, by its name."""
    for part, kind in (
        (".spare", "recycled log"), ("/log/", "log"), ("-wal", "index WAL"), ("/index/", "index"),
        ("/chunks/c", "chunk"), ("/chunks/", "ownership of the storage"),
    ):  # fmt: skip
        if part in name:
            return kind
    return name[1:]


def bytes_tried(name: str, content: bytes) -> Iterator[int]:
    """The bytes of a file that an exhaustive run flips: all of them, but for long runs of zeros."""
    if name.endswith(".spare"):
        yield from range(0, len(content), ZERO_STEP)
        return
    at = 0
    while at < len(content):
        end = at
        while end < len(content) and not content[end]:
            end += 1
        for byte in range(at, end):
            near = byte < at + EDGE_BYTES or byte >= end - EDGE_BYTES or byte % BLOCK_BYTES < EDGE_BYTES
            if near or end - at < ZERO_RUN_BYTES or byte % ZERO_STEP == 0:
                yield byte
        if end < len(content):
            yield end
        at = end + 1


def places(files: dict[str, bytes], step: int, seed: int) -> Iterator[Place]:
    """One bit of every `step`th byte of each file, beginning anywhere; with step 1 what the module says."""
    drawn = random.Random(seed)
    for name, content in files.items():
        if name.endswith(NOT_STORED):
            continue
        tried = bytes_tried(name, content) if step == 1 else range(drawn.randrange(step), len(content), step)
        for byte in tried:
            for bit in range(8) if step == 1 and name in ALL_BITS else (drawn.randrange(8),):
                yield Place(name, byte, bit)


def outcome(directory: Path, expected: small_data.Served) -> str:
    """`right`, or `refused: ...`; raises AssertionError with what is wrong."""
    try:
        served = asyncio.run(asyncio.wait_for(small_data.read(directory, ENV), HANG_SECONDS))
    except SaritError as error:
        return f"not opened: {type(error).__name__}: {error}"
    except TimeoutError:
        raise AssertionError("it hangs") from None
    refused = {what: value for what, value in served.items() if isinstance(value, SaritError)}
    other = {what: value for what, value in served.items() if what not in refused and value != expected[what]}
    assert not other, f"wrong: {other}"
    assert set(served) == set(expected)
    if refused:
        what, error = next(iter(refused.items()))
        return f"refused: {what}: {type(error).__name__}: {error}"
    return "right"


def found_by_verify(directory: Path) -> bool:
    """Whether `sarit verify` finds damage, or cannot run."""

    async def main() -> bool:
        opened = open_directory(ENV, str(directory))
        try:
            return bool((await verify(ENV, opened, Silent())).damaged)
        finally:
            opened.close()

    try:
        return asyncio.run(main())
    except SaritError:
        return True


def repaired(directory: Path) -> bool:
    """Whether `sarit repair` changes something and leaves nothing."""
    plan = plan_repair(ENV, 0, f"{directory}/index/container-0.db")
    if not plan.changes or plan.left:
        return False
    apply(ENV, plan, lambda _: None)
    return True


def try_flip(directory: Directory, place: Place, expected: small_data.Served) -> str:
    """The outcome of one flip; `WRONG: ...` says what must not be."""
    try:
        directory.write(place)
        result = outcome(directory.path, expected)
        if result != "right":
            directory.write(place)
            assert found_by_verify(directory.path), f"{result}; sarit verify finds nothing"
            if "/index/" in place.name and repaired(directory.path):
                assert outcome(directory.path, expected) == "right", "not right after its repair"
                return "repaired"
    except Exception as error:  # an assertion of ours or of Sarit's, or a bug
        return f"WRONG: {type(error).__name__}: {str(error)[:600]}"
    return result


def run(working: Path, step: int, seed: int, *, show: bool = False, only: str = "", progress: bool = False) -> Outcomes:
    """Flip bits in a directory that was killed and in one that was stopped."""
    logging.disable(logging.CRITICAL)
    done = Outcomes()
    try:
        made = {}
        for how in ("stopped", "killed"):
            expected = asyncio.run(small_data.make(working / how, stop=how == "stopped", event_bytes=EVENT_BYTES))
            directory = Directory(working / f"{how}-flipped", working / how)
            tried = [place for place in places(directory.files, step, seed) if only in place.name]
            made[how] = directory, expected, tried
        shown = Progress(sum(len(tried) for _, _, tried in made.values()), shown=progress)
        for how, (directory, expected, tried) in made.items():
            for place in tried:
                what = f"{how}{place.name} byte {place.byte} bit {place.bit}"
                result = try_flip(directory, place, expected)
                done.flips += 1
                if result.startswith("WRONG"):
                    done.wrong.append(f"{what}: {result}")
                    if progress:
                        print(done.wrong[-1], flush=True)
                done.counts[kind_of(place.name), result.partition(":")[0]] += 1
                if show and result != "right":
                    print(f"{what}: {result[:300]}", flush=True)
                shown.note(done, what)
    finally:
        logging.disable(logging.NOTSET)
    return done


def scratch() -> Path:
    """A new directory in memory where there is one: every flip writes and opens a data directory."""
    return Path(tempfile.mkdtemp(prefix="bit-flips-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every byte")
    parser.add_argument("--step", type=int, default=200, help="every Nth byte")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="files whose name has this")
    parser.add_argument("--show", action="store_true", help="print every refusal")
    options = parser.parse_args()
    working, began = scratch(), time.monotonic()
    try:
        step = 1 if options.all else options.step
        done = run(working, step, options.seed, show=options.show, only=options.only, progress=True)
    finally:
        shutil.rmtree(working)
    print(f"{done.flips} flips in {time.monotonic() - began:.0f} s ({time.process_time():.0f} s of processor time)")
    for (kind, what), count in sorted(done.counts.items()):
        print(f"  {kind}: {what} {count}")
    for wrong in done.wrong:
        print(wrong)
    sys.exit(bool(done.wrong))


if __name__ == "__main__":
    main()
