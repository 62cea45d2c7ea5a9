"""A small program that uses the whole client: a strict type checker accepts it, and it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

PROGRAM = Path(__file__).with_name("user_program.py")
ROOT = Path(__file__).parents[3]
# Kept between runs, which a change of a module then costs a second; not that of the project, whose options differ.
CACHE = ROOT / ".mypy_cache" / "user"


def checked(path: Path, directory: Path) -> str:
    """What mypy says of a program in a directory that has no configuration."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", CACHE, path],
        cwd=directory, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_strict_type_checker_accepts_a_program_of_a_user(tmp_path) -> None:
    assert checked(PROGRAM, tmp_path).startswith("Success")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("assert_type(info, sarit.StreamInfo)", "assert_type(info, str)"),
        ("reader.read(timeout=5)", "reader.read(timeout='5')"),
    ],
)
def test_type_checker_sees_what_is_wrong(right, wrong, tmp_path) -> None:
    """Were results of no known type, each `assert_type` would still have to fail."""
    text = PROGRAM.read_text()
    assert right in text
    path = tmp_path / "wrong.py"
    path.write_text(text.replace(right, wrong, 1))
    assert "Found 1 error" in checked(path, tmp_path)


def test_program_of_a_user_runs(tmp_path) -> None:
    with RunningNode(tmp_path / "node") as node:
        done = subprocess.run(
            [sys.executable, PROGRAM, "user"],
            env=os.environ | {"SARIT_CONTROLLER": node.controller}, capture_output=True, text=True,
            timeout=HANG_SECONDS, check=False,
        )  # fmt: skip
    assert done.stdout == "done\n", done.stderr


def test_program_of_a_user_names_every_public_name() -> None:
    text = PROGRAM.read_text()
    missing = [name for name in sarit.__all__ if f"sarit.{name}" not in text and name != "aio"]
    assert not missing, f"use them in {PROGRAM.name}: {missing}"
