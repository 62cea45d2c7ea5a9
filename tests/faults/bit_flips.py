"""Flips one bit of one byte of a data directory, opens it, and reads everything.

    python -m tests.faults.bit_flips --all         # every byte of every file, one bit each
    python -m tests.faults.bit_flips --step 50     # every 50th byte

Each flip must have one of two outcomes: everything is served as it was written, or something is refused with an error
of Sarit that says what is damaged.  Never other bytes, never less, never an assertion, a traceback or a hang.  `sarit
verify` is run on directories that serve less than everything: it must find damage there.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.env.real import real_env
from sarit.verify.directory import open_directory, verify
from sarit.verify.repair import apply, plan_repair
from tests.faults import small_data

if TYPE_CHECKING:
    from collections.abc import Iterator

HANG_SECONDS = 60.0
# SQLite's index of its WAL: shared memory of a process that is gone, made again.
NOT_STORED = ("-shm", ".lock", "/lock")


@dataclass
class Outcomes:
    """What the flips of one run did."""

    flips: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Silent:
    """A progress that nobody sees."""

    def begin(self, label: str, length: int) -> None:
        """Nothing."""

    def add(self, length: int) -> None:
        """Nothing."""


def places(directory: Path, step: int, seed: int) -> Iterator[tuple[str, int, int]]:
    """(file, byte, bit): every `step`th byte of each file, beginning anywhere, and one bit of it."""
    drawn = random.Random(seed)
    for path in sorted(directory.rglob("*")):
        name = f"/{path.relative_to(directory)}"
        if not path.is_file() or name.endswith(NOT_STORED):
            continue
        for at in range(drawn.randrange(step), path.stat().st_size, step):
            yield name, at, drawn.randrange(8)


def flip(path: Path, at: int, bit: int) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (value,) = file.read(1)
        file.seek(at)
        file.write(bytes((value ^ 1 << bit,)))


def outcome(directory: Path, expected: small_data.Served) -> str:
    """`right`, or `refused: ...`; raises AssertionError with what is wrong."""
    try:
        served = asyncio.run(asyncio.wait_for(small_data.read(directory), HANG_SECONDS))
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
        opened = open_directory(real_env(), str(directory))
        try:
            return bool((await verify(real_env(), opened, Silent())).damaged)
        finally:
            opened.close()

    try:
        return asyncio.run(main())
    except SaritError:
        return True


def repaired(directory: Path) -> bool:
    """Whether `sarit repair` changes something and leaves nothing."""
    plan = plan_repair(real_env(), 0, f"{directory}/index/container-0.db")
    if not plan.changes or plan.left:
        return False
    apply(real_env(), plan, lambda _: None)
    return True


def run(working: Path, step: int, seed: int, *, show: bool = False, only: str = "") -> Outcomes:
    """Flip bits in a directory that was killed and in one that was stopped."""
    logging.disable(logging.CRITICAL)
    done = Outcomes()
    try:
        for how in ("killed", "stopped"):
            original, copy = working / how, working / f"{how}-flipped"
            expected = asyncio.run(small_data.make(original, stop=how == "stopped"))
            for name, at, bit in places(original, step, seed):
                if only not in name:
                    continue
                shutil.copytree(original, copy)
                flip(copy / name[1:], at, bit)
                what = f"{how}{name} byte {at} bit {bit}"
                done.flips += 1
                try:
                    result = outcome(copy, expected)
                    if result != "right":
                        shutil.rmtree(copy)
                        shutil.copytree(original, copy)
                        flip(copy / name[1:], at, bit)
                        assert found_by_verify(copy), f"{result}; sarit verify finds nothing"
                        if "/index/" in name and repaired(copy):
                            assert outcome(copy, expected) == "right", "not right after its repair"
                            result = "repaired"
                except Exception as error:  # an assertion of ours or of Sarit's, or a bug
                    result = f"WRONG: {type(error).__name__}: {str(error)[:600]}"
                    done.wrong.append(f"{what}: {result}")
                done.counts[result.partition(":")[0]] += 1
                if show and result != "right":
                    print(f"{what}: {result[:300]}", flush=True)
                shutil.rmtree(copy)
    finally:
        logging.disable(logging.NOTSET)
    return done


def scratch() -> Path:
    """A new directory in memory where there is one: every flip copies and opens a data directory."""
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
        done = run(working, 1 if options.all else options.step, options.seed, show=options.show, only=options.only)
    finally:
        shutil.rmtree(working)
    print(f"{done.flips} flips in {time.monotonic() - began:.0f} s: {dict(done.counts)}")
    for wrong in done.wrong:
        print(wrong)
    sys.exit(bool(done.wrong))


if __name__ == "__main__":
    main()
