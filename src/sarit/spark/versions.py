"""The version of the installed PySpark, and what its Python data sources can do."""

from __future__ import annotations

from typing import Final

import pyspark

from sarit.core.errors import Invalid

_OLDEST: Final = (4, 1)
_ADMISSION_CONTROL: Final = (4, 2)

MISSING_IN_4_1: Final = (
    "PySpark {version} does not pass trigger and limits to Python sources: availableNow reads one micro-batch, bounded "
    "by the limits of the options alone, and the query's progress has no latest offset (lag). Use PySpark 4.2 or newer "
    "for these"
)


def version() -> str:
    """Return the version of PySpark, as "4.2.1"."""
    return str(pyspark.__version__)


def parse(text: str) -> tuple[int, int]:
    """Parse the major and minor version; (0, 0): `text` is no version."""
    parts = text.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(map(str.isdecimal, parts[:2])) else (0, 0)


def check(text: str) -> None:
    """Check that a version of PySpark is not too old.  Raises Invalid."""
    if not is_supported(text):
        raise Invalid(f'format("sarit") needs PySpark 4.1 or newer; found {text}')


def is_supported(text: str) -> bool:
    """Return whether the connector works with a version of PySpark."""
    return parse(text) >= _OLDEST


def has_admission_control(text: str) -> bool:
    """Return whether Spark passes start, limit and trigger to a Python streaming source."""
    return parse(text) >= _ADMISSION_CONTROL
