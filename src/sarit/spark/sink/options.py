"""The options of a write.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.spark.formats import options as formats
from sarit.spark.options import DEFAULT_CONTROLLER, Given, Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import StreamName
    from sarit.spark.options import Target

OPTIONS: Final[tuple[Option, ...]] = ()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write."""

    target: Target
    stream: StreamName


def parse_write(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> WriteOptions:
    """Write options; unknown ones are refused.  Raises Invalid."""
    given = Given(options, [OPTIONS, formats.OPTIONS])
    return WriteOptions(given.target(default_controller), given.stream())
