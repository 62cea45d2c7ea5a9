"""Makes views of the streams and tables of a scope in a Spark session.

Spark's catalogs (`spark.sql.catalog.NAME`) are classes of the JVM, which Python cannot provide; SQL can use temporary
views instead.  They are made only by Spark's public calls, so they work with Spark Connect, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, NotFound
from sarit.core.names import StreamName
from sarit.spark.sink.options import DEFAULT_TABLE
from sarit.spark.tables.options import STREAMS, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

_NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")


def view_name(name: StreamName) -> str:
    """Return `scope_stream`, with an underscore for each character that an SQL name cannot have."""
    return _NO_IDENTIFIER.sub("_", f"{name.scope}_{name.stream}")


def register(
    spark: SparkSession, scope: str, options: Mapping[str, object] | None = None, *, streaming: bool = False
) -> list[str]:
    """Make a temporary view of every stream and key-value table of a scope.  Returns the names of the views, sorted.

    `options`: the options of the reads, as `{"controller": "host:9090", "format": "json"}`.  `streaming`: make views of
    streaming reads, which tables do not have.  A view shows what its stream holds when it is queried, but streams and
    tables that are created later need another call.  Views of the same names are replaced.  The sink's own table gets
    no view.  Raises NotFound (the scope has no streams or tables), Invalid (two views would have the same name), and
    Spark's AnalysisException for wrong options.
    """
    given = {name: str(value) for name, value in (options or {}).items()}
    streams = _listed(spark, STREAMS, scope, given)
    # Leave out the sink's own table of its micro-batches.
    tables = [] if streaming else [t for t in _listed(spark, TABLES, scope, given) if t.stream != DEFAULT_TABLE]
    if not streams and not tables:
        raise NotFound(f"scope {scope} has no streams and no tables, or it does not exist")
    reads = [*_named(streams, "stream"), *_named(tables, "table")]
    views: dict[str, tuple[str, StreamName]] = {}
    for kind, name in reads:
        other = views.setdefault(view_name(name), (kind, name))
        if other != (kind, name):
            raise Invalid(f"{kind} {name} and {other[0]} {other[1]} would both be the view {view_name(name)}")
    for view, (kind, name) in views.items():
        source = spark.readStream if streaming else spark.read
        settings = given if kind == "stream" else _connection(given)
        source.format("sarit").options(**settings).option(kind, str(name)).load().createOrReplaceTempView(view)
    return sorted(views)


def _named(names: Iterable[StreamName], kind: str) -> list[tuple[str, StreamName]]:
    return [(kind, name) for name in names]


def _listed(spark: SparkSession, kind: str, scope: str, given: Mapping[str, str]) -> list[StreamName]:
    found = spark.read.format("sarit").options(**_connection(given)).option("metadata", kind).option("scope", scope)
    rows = found.load().select("scope", kind.removesuffix("s")).collect()
    return [StreamName(*row) for row in rows]


def _connection(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the connection."""
    return {name: value for name, value in given.items() if name.lower() in ("controller", "waitseconds")}
