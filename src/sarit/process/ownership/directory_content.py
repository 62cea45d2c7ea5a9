"""What a data directory must hold once its node has served, and what of it is missing.

A disk that is not mounted, or a directory that was deleted to "mend" something, looks like a new directory.  The node
that starts on it would lose what was acknowledged.  `DATA/meta` says whether the directory has ever been complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Files

LOG_FOLDER: Final = "log"
INDEX_FOLDER: Final = "index"
CHUNKS_FOLDER: Final = "chunks"
# File in the data directory: the ownership tokens that its starts wrote.
LAST_START: Final = "last-start"
# File in the data directory: exists once long-term storage holds the owner chunk of this node.
OWNER_CHUNK_WRITTEN: Final = "storage-marked"
# File in the data directory while a restore makes it (`ops/backup/restore.py`).
RESTORING: Final = "restoring"
# What `DATA/meta` says of indexes in the directory; else it has the URL of `--index-storage`.
SQLITE: Final = "sqlite"
# Names that no other program gives: one of them makes a directory Sarit's, whatever else is in it.
_MARKS: Final = frozenset({"meta", LAST_START, OWNER_CHUNK_WRITTEN, RESTORING})
_PIECES: Final = frozenset(
    {LOG_FOLDER, INDEX_FOLDER, CHUNKS_FOLDER, "lock", *_MARKS, *(f"{name}.new" for name in _MARKS)}
)


def is_data_directory(names: Sequence[str]) -> bool:
    """Return whether a directory with these names is one of a node, or of a start that did not get far."""
    return not _MARKS.isdisjoint(names) or _PIECES.issuperset(names)


def is_index_directory(names: Sequence[str]) -> bool:
    """Return whether a directory with these names holds indexes alone."""
    return all(name.startswith("container-") for name in names)


@dataclass(frozen=True, slots=True)
class Missing:
    """A piece that is missing: its path in the data directory, what it is, and whose if it is of one container."""

    path: str
    what: str
    container: int | None = None

    def __str__(self) -> str:
        return f"{self.what} is missing ({self.path})"


def index_file(container: int) -> str:
    """Return the path of an index in the data directory."""
    return f"{INDEX_FOLDER}/container-{container}.db"


def find_missing(
    files: Files, directory: str, containers: int, *, chunks_inside: bool, index: str, log_inside: bool = True
) -> list[Missing]:
    """Return the missing pieces of a directory that has been complete.  Blocks."""
    logs = [
        Missing(f"{LOG_FOLDER}/{number}", f"the durable log of container {number}", number)
        for number in range(containers)
        if log_inside and not _holds_log(files, f"{directory}/{LOG_FOLDER}/{number}")
    ]
    indexes = [
        Missing(index_file(number), f"the index of container {number}", number)
        for number in range(containers)
        if index == SQLITE and not files.exists(f"{directory}/{index_file(number)}")
    ]
    found = [
        *([Missing(LOG_FOLDER, "the durable log")] if len(logs) == containers else logs),
        *([Missing(INDEX_FOLDER, "the index")] if len(indexes) == containers else indexes),
    ]
    if chunks_inside and not files.exists(f"{directory}/{CHUNKS_FOLDER}"):
        found.append(Missing(CHUNKS_FOLDER, "long-term storage"))
    if not files.exists(f"{directory}/{LAST_START}"):
        found.append(Missing(LAST_START, "the file of ownership tokens"))
    return found


def _holds_log(files: Files, directory: str) -> bool:
    return files.exists(directory) and any(name.endswith(".log") for name in files.list(directory))


def find_traces(files: Files, directory: str) -> list[str]:
    """Find the pieces of a node in a directory without a description.  Blocks."""
    names = (LOG_FOLDER, INDEX_FOLDER, CHUNKS_FOLDER, LAST_START, OWNER_CHUNK_WRITTEN)
    return [name for name in names if files.exists(f"{directory}/{name}")]


def count_containers(files: Files, directory: str) -> int:
    """Return how many containers the logs and indexes of a directory are of; 0 when it has none.  Blocks."""
    numbers = []
    for folder, prefix, suffix in ((LOG_FOLDER, "", ""), (INDEX_FOLDER, "container-", ".db")):
        if files.exists(f"{directory}/{folder}"):
            names = [name.removeprefix(prefix).removesuffix(suffix) for name in files.list(f"{directory}/{folder}")]
            numbers += [int(name) for name in names if name.isdecimal()]
    return max(numbers, default=-1) + 1


def refusal(directory: str, missing: Sequence[Missing]) -> str:
    """Return why a node does not start without these pieces, and what to do."""
    found = ", ".join(str(piece) for piece in missing)
    whole = any(piece.container is None for piece in missing)
    others = "" if whole else "--allow-damaged serves the other containers; "
    return (
        f"{directory} is not complete: {found}.  Is its disk mounted?  Put back what is missing, from its disk or a "
        f"backup; {others}--accept-data-loss goes on without it: what only it holds is lost, for good"
    )
