"""Metadata files by number, for readers that know a table by its directory and ask no catalog.

Presto's HADOOP catalog, and others of that kind, read `metadata/version-hint.text` for a number N, and then
`metadata/vN.metadata.json`.  Catalogs name the files otherwise (`00012-UUID.metadata.json`), so after each commit the
newest one is copied: N is its own number and 1, so two processes that do it at once write the same.  The copy comes
before its number.  Each file is there as a whole or not at all: by a rename in a directory, by a put on an object
store.

Such readers must not write: they would commit to files that the catalog knows nothing of.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.lake.limits import NUMBERED_METADATA_KEPT

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_POINTER: Final = "version-hint.text"
_NAME: Final = re.compile(r"(\d{1,18})-.*\.metadata\.json")


def copy_of(metadata_location: str) -> tuple[str, int]:
    """Return the directory of a metadata file, and the number of its copy.  Raises Invalid: it has no number."""
    directory, _, name = metadata_location.rpartition("/")
    found = _NAME.fullmatch(name)
    if found is None:
        raise Invalid(
            f"the catalog names metadata files without a number ({name[:80]}): they cannot be numbered copies"
        )
    return directory, int(found[1]) + 1


def write_numbered_metadata(table: Table) -> int:
    """Copy the newest metadata of a table, and point to the copy.  Blocks.  Returns the number of the copy.

    Copies that are NUMBERED_METADATA_KEPT behind are deleted.  Raises Invalid, and what the table's storage raises."""
    directory, number = copy_of(table.metadata_location)
    io = table.io
    before = _pointed_to(io, directory)
    if before >= number:  # by another process, or by ourselves
        return before
    with io.new_input(table.metadata_location).open() as source:
        content = source.read()
    _put(io, f"{directory}/v{number}.metadata.json", content)
    _put(io, f"{directory}/{_POINTER}", str(number).encode())
    for old in range(max(1, before - NUMBERED_METADATA_KEPT), number - NUMBERED_METADATA_KEPT):
        with suppress(Exception):  # a copy may be gone, and one that stays does no harm
            io.delete(f"{directory}/v{old}.metadata.json")
    return number


def _pointed_to(io: FileIO, directory: str) -> int:
    """Return the number that the pointer has; 0: there is none, or it is no number."""
    try:
        with io.new_input(f"{directory}/{_POINTER}").open() as file:
            text = file.read(32).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return 0
    return int(text) if text.isascii() and text.isdecimal() else 0


def _put(io: Any, location: str, content: bytes) -> None:
    local = _local(io, location)
    if local is None:
        with io.new_output(location).create(overwrite=True) as file:
            file.write(content)
        return
    files, path = local
    with files.open_output_stream(f"{path}.new") as file:
        file.write(content)
    files.move(f"{path}.new", path)


def _local(io: Any, location: str) -> tuple[Any, str] | None:
    """Return the file system and the path of a file on this machine; None: it is elsewhere."""
    from pyarrow.fs import LocalFileSystem

    scheme, slashes, rest = location.partition("://")
    if slashes and scheme != "file":
        return None
    return LocalFileSystem(), rest if slashes else location.removeprefix("file:")
