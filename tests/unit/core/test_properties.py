"""Properties of streams: names, values, and whether noted times are milliseconds."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.core.properties import MAX_PROPERTIES, changed, check_change, require_milliseconds

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time-unit": "minutes"}, "one of milliseconds, seconds"),
        ({"schema-header": "kafka"}, "one of confluent, pravega, none"),
        ({"timeunit": "seconds"}, "there is no property timeunit.*time-unit.*example.com.timeunit"),
        ({"a.b": "ä" * 513}, "at most 1024 bytes"),
        ({"a" * 60 + ".bcde": "x"}, "at most 64"),
        ({"A.b": "x"}, "small letters"),
        ({"a.b\n": "x"}, "small letters"),
        ({".b": "x"}, "small letters"),
        ({"": "x"}, "small letters"),
        ({"a.b": 5}, "texts by name"),
        ({5: "x"}, "texts by name"),
    ],
)
def test_wrong_properties_are_refused_with_a_reason(change, reason):
    with pytest.raises(Invalid, match=reason) as error:
        check_change(change)
    assert len(str(error.value)) < 300


def test_change_sets_and_removes_and_is_bounded():
    present = changed({}, {"time-unit": "seconds", "a.b": "1"})
    assert present == {"a.b": "1", "time-unit": "seconds"}
    assert changed(present, {"a.b": "", "c.d": "2"}) == {"c.d": "2", "time-unit": "seconds"}
    full = changed({}, {f"a.b{n}": "x" for n in range(MAX_PROPERTIES)})
    with pytest.raises(Invalid, match="at most 32"):
        changed(full, {"one.more": "x"})
    assert len(changed(full, {"a.b0": "", "one.more": "x"})) == MAX_PROPERTIES


@pytest.mark.parametrize("noted", [NOW // 1000, NOW * 1000, NOW * 1_000_000, 59, 0, -5])
def test_times_that_cannot_be_milliseconds_are_refused_unless_somebody_says_so(noted):
    with pytest.raises(Invalid, match="no milliseconds since 1970.*--property time-unit=milliseconds"):
        require_milliseconds({}, noted, "s/t")
    require_milliseconds({"time-unit": "milliseconds"}, noted, "s/t")


def test_stated_unit_decides_whatever_the_times_are():
    require_milliseconds({}, NOW, "s/t")
    for unit in ("seconds", "microseconds", "nanoseconds", "none"):
        with pytest.raises(Invalid, match=f"'{unit}'.*give a stream cut"):
            require_milliseconds({"time-unit": unit}, NOW, "s/t")
