"""The Iceberg catalogs of a node, by name: a file of TOML that only the operator reads.

    [lake]
    scopes = ["shop", "team-*"]
    uri = "postgresql+psycopg2://sarit:PASSWORD@db/iceberg"
    warehouse = "s3://lake/warehouse"
    "s3.access-key-id" = "..."
    "s3.secret-access-key" = "..."

A table of the file is a catalog; its keys are PyIceberg's properties, but for `scopes`: the scopes whose streams may be
tables of it, with `*` for any characters; without it, all.  Users of streams name a catalog, and learn
nothing else of it.  So `Catalogs` shows names only, and whatever PyIceberg or a library below it says goes through
`Catalogs.hide` before it is logged, stored or answered: texts of such errors have URLs with passwords in them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid, Unavailable
from sarit.core.extras import require
from sarit.core.nearest_names import nearest
from sarit.core.texts import cut_text
from sarit.env.small_files import read_secret
from sarit.lake.limits import (
    MAX_CATALOG_PROPERTIES,
    MAX_CATALOG_PROPERTY_CHARACTERS,
    MAX_CATALOGS,
    MAX_ICEBERG_NAME_CHARACTERS,
    MAX_SHOWN_CATALOG_ERROR_CHARACTERS,
    MIN_HIDDEN_CHARACTERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_SCOPES: Final = "scopes"
_SCOPE: Final = re.compile(r"[A-Za-z0-9.\-*]{1,250}")
# Properties whose values are words that every catalog has.
_COMMON: Final = re.compile(r"type|(s3|gcs|glue|client)\.region|py-(io|catalog)-impl|.*\.(timeout|enabled|path-style)")
_USER_OF_URL: Final = re.compile(r"(?<=://)[^/@\s]+@")
_HIDDEN: Final = "***"


class Catalogs(Mapping[str, Mapping[str, str]]):
    """The catalogs that a node knows: name -> properties of PyIceberg.  The `repr` has no values."""

    def __init__(
        self, catalogs: Mapping[str, Mapping[str, str]], scopes: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """`scopes`: by the catalogs that are not for all of them."""
        self._scopes = {name: tuple(patterns) for name, patterns in (scopes or {}).items()}
        self._catalogs = {name: dict(properties) for name, properties in catalogs.items()}
        self._secrets = sorted(set(_secrets(self._catalogs)), key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<Catalogs {', '.join(sorted(self._catalogs)) or 'none'}>"

    def __getitem__(self, name: str) -> Mapping[str, str]:
        return self._catalogs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalogs)

    def __len__(self) -> int:
        return len(self._catalogs)

    def properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of a catalog.  Raises Invalid: the node has none of that name."""
        if not self._catalogs:
            raise Invalid(
                f"there is no catalog {name}: this node has no Iceberg catalogs, its operator sets --catalogs"
            )
        if name not in self._catalogs:
            raise Invalid(f"there is no catalog {name} in the node's configuration; {nearest(name, self._catalogs)}")
        return self._catalogs[name]

    def for_scope(self, name: str, scope: str) -> Mapping[str, str]:
        """Return the properties of a catalog for streams of a scope.  Raises Invalid: the node has none of that name,
        or it is for other scopes."""
        found, patterns = self.properties(name), self._scopes.get(name)
        if patterns is not None and not any(fnmatchcase(scope, pattern) for pattern in patterns):
            raise Invalid(
                f"catalog {name} is not for streams of scope {scope}: the node's operator decides, by its scopes"
            )
        return found

    def hide(self, text: str) -> str:
        """Return a text without secrets and addresses of any catalog, and bounded."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = _USER_OF_URL.sub(f"{_HIDDEN}@", text)
        return cut_text(" ".join(text.split()), MAX_SHOWN_CATALOG_ERROR_CHARACTERS)


def read_catalogs(path: str | None) -> Catalogs:
    """Return the catalogs in a file; none without one.  Raises Invalid: the file cannot be read, others may read it, or
    its contents are wrong."""
    if path is None:
        return Catalogs({})
    data = read_secret(path, "--catalogs", "who could use the catalogs and object stores in it")
    try:
        return parse_catalogs(data.decode())
    except UnicodeDecodeError:
        raise Invalid(f"--catalogs: {path} is not text in UTF-8") from None
    except Invalid as error:
        raise Invalid(f"--catalogs: {path}: {error}") from None


def parse_catalogs(text: str) -> Catalogs:
    """Return the catalogs in the text of a file.  Raises Invalid; the error has no values."""
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r"\(at (line \d+), column \d+\)", str(error))  # the rest of the text may quote a secret
        raise Invalid(f"this is not TOML{f': {place[1]}' if place else ''}") from None
    if len(found) > MAX_CATALOGS:
        raise Invalid(f"there are {len(found)} catalogs: at most {MAX_CATALOGS}")
    scopes = {
        name: _taken_scopes(name, properties)
        for name, properties in found.items()
        if isinstance(properties, dict) and _SCOPES in properties
    }
    return Catalogs({name: _properties(name, properties) for name, properties in found.items()}, scopes)


def _taken_scopes(name: str, properties: dict[str, object]) -> list[str]:
    """Remove the scopes from the properties of a catalog, and return them.  Raises Invalid."""
    found = properties.pop(_SCOPES)
    patterns = found if isinstance(found, list) else []
    if not patterns or any(not isinstance(each, str) or _SCOPE.fullmatch(each) is None for each in patterns):
        raise Invalid(f'catalog {name[:40]}: scopes are a list of names, as ["shop", "team-*"]')
    return patterns


def _properties(name: str, properties: object) -> dict[str, str]:
    if _NAME.fullmatch(name) is None or len(name) > MAX_ICEBERG_NAME_CHARACTERS:
        raise Invalid(f"{name[:40]!a} cannot be the name of a catalog: use letters, digits, '_' and '-'")
    if not isinstance(properties, dict):
        raise Invalid(f"{name} is not a table: write the properties of a catalog below [{name}]")
    flat = dict(_flat(name, properties))
    if len(flat) > MAX_CATALOG_PROPERTIES:
        raise Invalid(f"catalog {name} has {len(flat)} properties: at most {MAX_CATALOG_PROPERTIES}")
    if "uri" not in flat and "type" not in flat and "py-catalog-impl" not in flat:
        raise Invalid(f"catalog {name} has neither uri nor type: give it what PyIceberg needs to find it")
    return flat


def _flat(name: str, properties: Mapping[str, object], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in properties.items():
        full = above + key
        if isinstance(value, dict):  # s3.endpoint without quotes is a table within the table
            yield from _flat(name, value, f"{full}.")
            continue
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, str | int | float):
            raise Invalid(f"catalog {name}: {full[:80]!a} is not a text, a number, true or false")
        if len(full) + len(str(value)) > MAX_CATALOG_PROPERTY_CHARACTERS:
            raise Invalid(f"catalog {name}: {full[:80]!a} has more than {MAX_CATALOG_PROPERTY_CHARACTERS} characters")
        yield full, str(value)


def _secrets(catalogs: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield what no text may show: values, and the parts of URLs and credentials by which libraries name them."""
    for properties in catalogs.values():
        for key, value in properties.items():
            if _COMMON.fullmatch(key) is None and value not in ("true", "false"):
                yield from (part for part in _parts(value) if len(part) >= MIN_HIDDEN_CHARACTERS)


def _parts(value: str) -> Iterator[str]:
    yield value
    if "://" not in value:
        yield from value.split(":")  # a credential is ID:SECRET
        return
    rest, _, query = value.partition("://")[2].partition("?")
    user, _, host = rest.partition("/")[0].rpartition("@")
    yield from (query, user, user.partition(":")[2], host, host.partition(":")[0])
    yield "".join(rest.partition("/")[1:])


def open_catalog(catalogs: Catalogs, name: str) -> Catalog:
    """Open a catalog: connect to it, as far as its kind does so at once.  Blocks.

    Raises Invalid: the node has no catalog of that name, PyIceberg is not installed, or cannot use the properties.
    Raises Unavailable: the catalog cannot be reached now."""
    properties = catalogs.properties(name)
    require("lake", "a stream's Iceberg table")
    from pyiceberg.catalog import load_catalog
    from sqlalchemy.exc import ArgumentError

    try:
        return load_catalog(name, **properties)
    except (ValueError, TypeError, ImportError, ArgumentError) as error:  # a driver that is missing, too
        reason = catalogs.hide(f"{type(error).__name__}: {error}")
        raise Invalid(f"catalog {name} cannot be used as it is configured: {reason}") from None
    except Exception as error:
        reason = catalogs.hide(f"{type(error).__name__}: {error}")
        raise Unavailable(f"catalog {name} cannot be opened: {reason}") from None
