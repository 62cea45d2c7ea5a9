"""Receives Spark's filters of a batch read (`DataSourceReader.pushFilters`).

Spark (4.1 to 4.3) keeps the partitions that it planned last for a DataFrame, with the filters of that use, and reads
them for every other use of the DataFrame.  So filters are used only if the user asks for it, and then a DataFrame must
be loaded for each use (docs/decisions/0416).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader

from sarit.spark.source.filters import EVERYTHING, Comparison, Wanted, wanted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from sarit.spark.source.options import ReadOptions

_OPERATORS: Final[dict[type[Filter], str]] = {
    datasource.EqualTo: "=",
    datasource.EqualNullSafe: "=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.In: "in",
}


class PushedFilters:
    """The method `pushFilters` of one reader.  `wanted`: the rows that the filters leave.

    Spark refuses a reader that overrides `pushFilters` if `spark.sql.python.filterPushdown.enabled` is false, which is
    the default, but reads must work without that setting.  Spark checks the method's `__func__`, so this object has the
    `__func__` of `DataSourceReader` (docs/decisions/0416)."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.wanted: Wanted = EVERYTHING

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return all filters, so that Spark evaluates them, too."""
        if self._options.push_filters:
            found = [known for known in map(comparison, filters) if known is not None]
            self.wanted = wanted(found, key_is_routing_key=self._options.key_is_routing_key)
        return filters


def comparison(offered: Filter) -> Comparison | None:
    """Convert a filter of Spark to a `Comparison`; None: the planner does not use such filters."""
    operator = _OPERATORS.get(type(offered))
    if operator is None:
        return None
    value: Any = offered.value  # type: ignore[attr-defined]
    path = offered.attribute  # type: ignore[attr-defined]
    return Comparison(path[0], operator, tuple(value) if operator == "in" else (value,)) if len(path) == 1 else None
