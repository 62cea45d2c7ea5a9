"""The check that a directory named by an operator is Sarit's: a wrong path must not write into somebody else's.

A directory is Sarit's when it is new, empty, or holds what Sarit makes there before anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Files

# Directories that file systems put into the top folder of a volume.
_OF_FILE_SYSTEMS: Final = frozenset({"lost+found", ".snapshot"})
_NAMED: Final = 80  # characters of a name that an error repeats


def names_in(files: Files, directory: str) -> list[str]:
    """Return the names in a directory, without those of its file system; none when it does not exist.  Blocks."""
    if not files.exists(directory):
        return []
    return [name for name in files.list(directory) if name not in _OF_FILE_SYSTEMS]


def require_own_directory(files: Files, directory: str, is_own: Callable[[Sequence[str]], bool]) -> None:
    """Check that a directory is new, empty, or Sarit's by the names in it.  Blocks.  Raises Invalid, OSError."""
    names = names_in(files, directory)
    if names and not is_own(names):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise Invalid(
            f"{directory} is not empty and not Sarit's (it holds {names[0][:_NAMED]}{more}): name an empty directory, "
            "or one that does not exist yet"
        )
