"""Unfinished chunks of a chunk directory: `.incoming/` under its root.

A chunk is written to `.incoming/<claim>-<n>` and renamed after its sync.  The next opening removes the files that a
crash left.  Several nodes may share a directory, so each opener makes a *claim*: the file `<claim>.lock`, locked until
it closes.  An opener removes only the files of dead claims: those whose lock it can take, and those without a lock
file.

Warnings.  (1) Between the creation of a lock file and its lock, another opener may remove the file as that of a dead
claim.  Then locking fails, or succeeds on a file without a name.  Both are checked, and another claim is made.  (2) The
files of a dead claim are removed before its lock file.

All calls block, so make them on a `Worker`, and raise OSError.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.storage.limits import CLAIM_NAME_BYTES

if TYPE_CHECKING:
    from sarit.env.ports import File, Files, Random

INCOMING: Final = ".incoming"
_LOCK_SUFFIX: Final = ".lock"
_MAX_CLAIM_ATTEMPTS: Final = 16


class Claim:
    """The claim of one opener to its files in `.incoming/`, until it is released or the process ends."""

    def __init__(self, files: Files, directory: str, name: str, lock: File) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._lock = lock
        self._count = 0

    def __repr__(self) -> str:
        return f"<Claim {self._directory}/{self._name}>"

    def next_path(self) -> str:
        """Return a new path, which no file of this claim has had.  Does not block."""
        self._count += 1
        return f"{self._directory}/{self._name}-{self._count}"

    def is_mounted(self) -> bool:
        """Return whether the directory is still mounted."""
        return self._files.exists(f"{self._directory}/{self._name}{_LOCK_SUFFIX}")

    def release(self) -> None:
        """Remove the lock file and unlock."""
        with suppress(OSError):
            self._files.remove(f"{self._directory}/{self._name}{_LOCK_SUFFIX}")
        self._lock.close()


def claim(files: Files, root: str, random: Random) -> Claim:
    """Make a claim.  Raises OSError when the file system does not support locks."""
    directory = f"{root}/{INCOMING}"
    files.make_dirs(directory)
    for _ in range(_MAX_CLAIM_ATTEMPTS):
        name = random.bytes(CLAIM_NAME_BYTES).hex()
        path = f"{directory}/{name}{_LOCK_SUFFIX}"
        lock = files.open(path, "create")
        # Check the name after the lock, since another opener may have removed the file in between (Warning 1).
        if lock.lock() and files.exists(path):
            return Claim(files, directory, name, lock)
        lock.close()
    raise OSError(f"cannot lock a file in {directory}: its file system may not support locks")


def sweep(files: Files, root: str) -> int:
    """Remove the files of dead claims.  Returns how many unfinished chunks they had."""
    directory = f"{root}/{INCOMING}"
    left: dict[str, list[str]] = {}
    locks: set[str] = set()
    for entry in files.list(directory):
        name, is_lock, _ = entry.partition(_LOCK_SUFFIX)
        if is_lock:
            locks.add(name)
            # Add a claim without chunks as well, whose lock file is to be removed.
            left.setdefault(name, [])
        else:
            left.setdefault(entry.partition("-")[0], []).append(entry)
    return sum(_sweep_claim(files, directory, name, left[name], name in locks) for name in sorted(left))


def _sweep_claim(files: Files, directory: str, name: str, entries: list[str], locked: bool) -> int:
    lock_path = f"{directory}/{name}{_LOCK_SUFFIX}"
    lock: File | None = None
    try:
        if locked:
            # Skip the claim if its lock is taken: the owner lives, in this process or another.
            lock = files.open(lock_path, "write")
            if not lock.lock():
                return 0
        for entry in entries:
            files.remove(f"{directory}/{entry}")
        if lock is not None:
            files.remove(lock_path)
        return len(entries)
    except FileNotFoundError:
        return 0  # another opener has removed the files, or the claim was released
    finally:
        if lock is not None:
            lock.close()
