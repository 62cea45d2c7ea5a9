"""Files of Iceberg catalogs for nodes of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_catalogs(directory: Path, more: str = "") -> Path:
    """A file with one catalog, `lake`: SQLite and a directory.  `more`: lines of it."""
    path = directory / "catalogs.toml"
    path.write_text(
        f'[lake]\nuri = "sqlite:///{directory}/catalog.db"\nwarehouse = "file://{directory}/warehouse"\n{more}'
    )
    path.chmod(0o600)
    return path
