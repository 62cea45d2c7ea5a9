"""The file of properties beside an exported file: there is one if the stream has properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sarit.cli.transfer.limits import MAX_PROPERTIES_FILE_BYTES
from sarit.core.errors import Invalid
from sarit.core.properties import check_change

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION: Final = 1


def _path(file: str) -> Path:
    return Path(f"{file.rstrip('/')}.properties")


def write(file: str, properties: Mapping[str, str]) -> None:
    """Write the properties beside an export; without any, remove those of an earlier one.  Raises OSError."""
    if not properties:
        _path(file).unlink(missing_ok=True)
        return
    _path(file).write_text(json.dumps({"version": _VERSION, "properties": dict(properties)}) + "\n")


def read(file: str) -> dict[str, str]:
    """Return the properties beside an exported file; none without it.  Raises Invalid."""
    path = _path(file)
    if file == "-" or not path.exists():
        return {}
    with path.open("rb") as source:
        data = source.read(MAX_PROPERTIES_FILE_BYTES)
    try:
        found = json.loads(data)
        version, properties = found["version"], dict(found["properties"])
        check_change(properties)
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise Invalid(f"{path} is no file of properties: delete it to import without them") from None
    if version != _VERSION:
        raise Invalid(f"{path} is of version {str(version)[:20]}, and this Sarit reads version {_VERSION}")
    return properties
