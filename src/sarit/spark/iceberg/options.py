"""The options of a read of a stream's Iceberg table with the tail of the stream."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.lake.catalogs import Catalogs, read_catalogs
from sarit.lake.settings import IcebergSettings
from sarit.spark.options import BATCH_READ, DEFAULT_CONTROLLER, Given, Option
from sarit.spark.options import OPTIONS as COMMON
from sarit.spark.registry import options as registry
from sarit.spark.source.options import parse_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.spark.registry.options import RegistryOptions
    from sarit.spark.source.options import ReadOptions

CATALOGS_VARIABLE: Final = "SARIT_CATALOGS"

OPTIONS: Final = (
    Option(
        "iceberg", BATCH_READ,
        "`CATALOG.NAMESPACE.TABLE`: the stream's Iceberg table and, above what is committed to it, the tail of the "
        "stream, as one table without doubles, in the columns of the Iceberg table",
    ),
    Option(
        "icebergCatalogs", "batch read with `iceberg`",
        "the file of TOML that has CATALOG: a table of PyIceberg's properties for each catalog. The driver reads it; "
        "as it may have passwords, only its owner may read it",
        f"`{CATALOGS_VARIABLE}` of the driver",
    ),
)  # fmt: skip

# What else of a read of a stream has a meaning here.
_SHARED: Final = frozenset({"minpartitions", "maxbytesperpartition", "failondataloss"})


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The options of a read of a table with a tail.  `read`: of the tail, which begins elsewhere."""

    table: str
    catalogs: Catalogs
    read: ReadOptions
    registry: RegistryOptions | None

    @property
    def catalog(self) -> str:
        """The name of the catalog."""
        return IcebergSettings(self.table).catalog

    @property
    def identifier(self) -> tuple[str, ...]:
        """The name of the table in its catalog."""
        return IcebergSettings(self.table).identifier


def is_view(options: Mapping[str, str]) -> bool:
    """Return whether the options name an Iceberg table."""
    return any(name.lower() == "iceberg" for name in options)


def refuse_view(options: Mapping[str, str]) -> None:
    """Raise Invalid if the options name an Iceberg table: it is read in batches alone."""
    if is_view(options):
        raise Invalid(
            "option iceberg is for spark.read: stream the stream itself, or read the table alone by Iceberg's connector"
        )


def parse_view(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> ViewOptions:
    """Parse the options of a read of a table with a tail.  Raises Invalid, also for options of other reads."""
    own = {option.name.lower() for option in OPTIONS}
    others = {option.name.lower() for table in (COMMON, registry.OPTIONS) for option in table}
    given = {name.lower(): value for name, value in options.items() if name.lower() in own}
    rest = {name: value for name, value in options.items() if name.lower() not in own}
    parsed = parse_read(rest, default_controller)  # names what is unknown, and which streams
    wrong = [name for name in rest if name.lower() not in others | _SHARED]
    if wrong:
        raise Invalid(
            f"option {', '.join(sorted(wrong))} has no meaning with iceberg: the table says the columns, and where the "
            "tail begins; a read that begins or ends elsewhere is one of the table alone, or of the stream alone"
        )
    table = IcebergSettings(given["iceberg"]).check().table
    asked = Given(given, [OPTIONS])
    path = asked.text("icebergCatalogs") or os.environ.get(CATALOGS_VARIABLE)
    if not path:
        raise Invalid(
            f'which catalog is {table.partition(".")[0]}? give .option("icebergCatalogs", FILE), or '
            f"{CATALOGS_VARIABLE}: a file of TOML with a table of that name"
        )
    parsed.stream  # noqa: B018 (raises Invalid for several streams)
    return ViewOptions(table, _catalogs(path), parsed, registry.parse_registry(options))


def _catalogs(path: str) -> Catalogs:
    try:
        return read_catalogs(path)
    except Invalid as error:
        raise Invalid(str(error).replace("--catalogs", "option icebergCatalogs", 1)) from None
