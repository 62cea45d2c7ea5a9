"""Spark's filters, as the reader of a batch gets them: `DataSourceReader.pushFilters`.

Spark (4.1 to 4.3) keeps the partitions that it planned last for a frame, and uses them for every other use of that
frame, also when they were planned with filters.  So filters are used only when the user asks for it, who then must load
a frame for each use (docs/decisions/0416).
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
    """The method `pushFilters` of one reader; `wanted` is what the filters leave.

    Spark refuses a reader with a `pushFilters` of its own where `spark.sql.python.filterPushdown.enabled` is false,
    its default.  Here filters only save reading, so without that setting the read must work all the same.  Spark asks
    which function the method has, and this has the one of `DataSourceReader` (docs/decisions/0416)."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.wanted: Wanted = EVERYTHING

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return all filters: Spark evaluates each again."""
        if self._options.push_filters:
            found = [known for known in map(comparison, filters) if known is not None]
            self.wanted = wanted(found, key_is_routing_key=self._options.key_is_routing_key)
        return filters


def comparison(offered: Filter) -> Comparison | None:
    """Return a filter of Spark as the planner knows it; None for one that it does not use."""
    operator = _OPERATORS.get(type(offered))
    if operator is None:
        return None
    value: Any = offered.value  # type: ignore[attr-defined]
    path = offered.attribute  # type: ignore[attr-defined]
    return Comparison(path[0], operator, tuple(value) if operator == "in" else (value,)) if len(path) == 1 else None
