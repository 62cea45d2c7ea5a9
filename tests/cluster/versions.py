"""The command `sarit` of another commit, with the libraries of that commit: made once, in `.cache/versions`."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "versions"
SYNC_SECONDS = 600
SHA_DIGITS = 12


class VersionMissing(Exception):
    """That commit cannot be run here, with the reason."""


def sha_of(commit: str) -> str:
    """Its name in short.  Raises VersionMissing: this repository has none of it, as after a shallow clone."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise VersionMissing(f"there is no commit {commit} here")
    return done.stdout.strip()[:SHA_DIGITS]


def commits_ago(count: int) -> str:
    """The commit so many before this one.  Raises VersionMissing."""
    return sha_of(f"HEAD~{count}")


def described(commit: str) -> str:
    """Its name and its date."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%h of %ad", "--date=format:%Y-%m-%d %H:%M", commit],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def program_of(commit: str) -> str:
    """The command `sarit` of that commit, from its own files and its own locked libraries.  Raises VersionMissing."""
    sha = sha_of(commit)
    place = CACHE / sha
    program = place / ".venv" / "bin" / "sarit"
    done = place / "made"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        files = subprocess.run(["git", "-C", str(ROOT), "archive", sha], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(files)) as archive:
            archive.extractall(place, filter="data")
        _install(place)
        done.touch()
    return str(program)


def _install(place: Path) -> None:
    private = ROOT / ".cache" / "uv" / "bin" / "uv"  # where tools/setup.sh has it, if the machine has none
    uv = shutil.which("uv") or str(private)
    made = subprocess.run(
        [uv, "sync", "--quiet", "--frozen", "--no-dev", "--extra", "cluster"],
        cwd=place, capture_output=True, text=True, timeout=SYNC_SECONDS, check=False,
    )  # fmt: skip
    if made.returncode:
        raise VersionMissing(f"uv sync failed in {place}: {made.stderr[-2000:]}")
