"""Publishes the position of a query as that of a reader group: `sarit group` shows its lag, and retention respects it.

A position is published once Spark has completed all micro-batches before it.  A failure does not fail the query: it is
logged, and the next publication repeats it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.spark.limits import SPARK_PUBLISH_SECONDS
from sarit.spark.source.position import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import StreamName
    from sarit.spark.source.access import SourceAccess
    from sarit.spark.source.position import Position

log = logging.getLogger(__name__)


class GroupPosition:
    """Publishes the position of a group ("scope/group") every few seconds while the query makes progress."""

    def __init__(self, group: str, source: SourceAccess) -> None:
        self._group = group
        self._source = source
        self._published: Mapping[StreamName, Position] | None = None
        self._reached: Mapping[StreamName, Position] = {}
        self._next = source.monotonic()

    def reached(self, offset: Mapping[str, object]) -> None:
        """Record that all micro-batches up to `offset` are completed, and publish the position if it is time."""
        self._reached = {stream: at.segments for stream, at in from_json(offset).streams.items() if at.segments}
        if self._source.monotonic() >= self._next:
            self.publish()

    def publish(self) -> None:
        """Publish the last position now, unless it is published already."""
        if not self._reached or self._reached == self._published:
            return
        try:
            self._source.publish(self._group, self._reached)
            self._published = self._reached
        except SaritError as error:
            log.warning("the position of the query was not published as reader group %s: %s", self._group, error)
        self._next = self._source.monotonic() + SPARK_PUBLISH_SECONDS
