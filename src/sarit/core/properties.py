"""Properties of a stream: what is known of its content, as short texts by name.

Names of Sarit's own are in `KNOWN`, each with its values.  A name of a user's own has a dot, as a domain
(`example.com.team`), so that it is never taken for one of Sarit's.

`time-unit`: in which unit writers note times; `milliseconds` (since 1970), `seconds`, `microseconds`, `nanoseconds`, or
`none` (no clock's).  Whoever compares noted times with the clock needs milliseconds: Spark's starts and ends by time,
and its column `noted_time`.

`schema-header`: what each event begins with that names its schema; `confluent` (00 and the id in a registry), `pravega`
(01 and the encoding id in its group), or `none`.  Both headers may begin payloads that have none, so that nobody can
tell from the bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME_UNIT: Final = "time-unit"
MILLISECONDS: Final = "milliseconds"
SCHEMA_HEADER: Final = "schema-header"
CONFLUENT: Final = "confluent"
PRAVEGA: Final = "pravega"
NO_HEADER: Final = "none"
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    TIME_UNIT: (MILLISECONDS, "seconds", "microseconds", "nanoseconds", "none"),
    SCHEMA_HEADER: (CONFLUENT, PRAVEGA, NO_HEADER),
}

MAX_PROPERTIES: Final = 32
_MAX_NAME: Final = 64
_MAX_VALUE: Final = 1024
_NAME: Final = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")

# Where no unit is stated, times from 1973 to 5138 are taken for milliseconds.  Those of today in seconds are below;
# those in microseconds and nanoseconds are above.
_LEAST_TIME: Final = 10**11
_MOST_TIME: Final = 10**14


def check_change(changes: Mapping[str, str]) -> None:
    """Check that a stream may have these names and values.  An empty value removes the property.  Raises Invalid."""
    for name, value in changes.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise Invalid("properties are texts by name")
        if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
            raise Invalid(
                f"property {name[:_MAX_NAME]!r}: a name has small letters, digits, '-' and '.', at most {_MAX_NAME}"
            )
        if name not in KNOWN and "." not in name:
            raise Invalid(
                f"there is no property {name}: Sarit has {', '.join(sorted(KNOWN))}; a name of your own has a dot, as "
                f"example.com.{name}"
            )
        if len(value.encode()) > _MAX_VALUE:
            raise Invalid(f"property {name}: a value has at most {_MAX_VALUE} bytes")
        if value and value not in KNOWN.get(name, (value,)):
            raise Invalid(f"property {name} is one of {', '.join(KNOWN[name])}, not {value[:_MAX_NAME]!r}")


def changed(present: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return the properties after a change, by name.  Raises Invalid."""
    check_change(changes)
    found = {name: value for name, value in sorted({**present, **changes}.items()) if value}
    if len(found) > MAX_PROPERTIES:
        raise Invalid(f"a stream has at most {MAX_PROPERTIES} properties, not {len(found)}")
    return found


def require_milliseconds(properties: Mapping[str, str], noted: int, stream: object) -> None:
    """Check that writers of a stream note milliseconds since 1970; `noted`: one of their times.  Raises Invalid."""
    unit = properties.get(TIME_UNIT)
    if unit == MILLISECONDS or (unit is None and _LEAST_TIME <= noted < _MOST_TIME):
        return
    if unit is not None:
        raise Invalid(
            f"writers of {stream} note times in the unit {unit!r} (property {TIME_UNIT}), which cannot be compared "
            "with the clock: give a stream cut, head or tail instead of a time, and no notedTime"
        )
    raise Invalid(
        f"writers of {stream} note times like {noted}, which are no milliseconds since 1970 and cannot be compared "
        "with the clock: give a stream cut, head or tail instead of a time, and no notedTime; for milliseconds, "
        f"say so with `sarit stream update {stream} --property {TIME_UNIT}={MILLISECONDS}`"
    )
