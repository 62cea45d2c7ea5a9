"""What the connector does with each version of PySpark."""

from __future__ import annotations

import inspect
import json

import pytest

from sarit.core.errors import Invalid
from sarit.spark import versions
from sarit.spark.source import stream_readers as streaming
from sarit.spark.source.options import parse_read
from sarit.spark.source.stream_readers import PlainStreamReader, stream_reader
from tests.unit.spark.fake_stream import A, FakeSource, FakeStream


def test_old_pyspark_is_refused():
    with pytest.raises(Invalid, match=r"needs PySpark 4.1 or newer; found 4.0.1"):
        versions.check("4.0.1")
    with pytest.raises(Invalid, match=r"found 3.5.4"):
        versions.check("3.5.4")
    for text in ("4.1.0", "4.2.0.dev1", "4.10.0", "5.0.0"):
        versions.check(text)
    assert [versions.has_admission_control(text) for text in ("4.1.9", "4.2.0", "4.10.1", "5.0.0")] == [
        False,
        *[True] * 3,
    ]


IS_4_2 = pytest.mark.skipif(
    not versions.has_admission_control(versions.version()), reason="PySpark 4.1 has no class for a reader of 4.2"
)


@pytest.mark.parametrize(
    ("version", "arguments"),
    [("4.1.1", 0), pytest.param("4.2.0", 2, marks=IS_4_2), pytest.param("4.3.0", 2, marks=IS_4_2)],
)
def test_reader_has_the_form_that_its_pyspark_calls(version, arguments, monkeypatch):
    monkeypatch.setattr(versions, "version", lambda: version)
    reader = stream_reader(parse_read({"stream": "s/t"}), None)
    assert len(inspect.signature(reader.latestOffset).parameters) == arguments


def test_reader_of_4_1_says_once_what_it_lacks_and_remembers_its_position(caplog, monkeypatch):
    stream = FakeStream()
    source = FakeSource(stream)
    monkeypatch.setattr(streaming, "ConnectedSource", lambda _: source)
    options = parse_read({"stream": "s/t", "maxBytesPerTrigger": "30"})
    stream.events[A] = [10] * 5
    reader = PlainStreamReader(options, None)
    first = json.loads(json.dumps(reader.initialOffset()))
    # Spark makes a reader for the tasks, too, which says nothing.
    assert not caplog.records
    end = reader.latestOffset()
    assert end == reader.latestOffset()
    assert len(caplog.records) == 1
    assert "availableNow reads one micro-batch" in caplog.text
    assert [part.parts[0].end for part in reader.partitions(first, end)] == [30]
    # A restarted query gets its last offset in this way.
    again = PlainStreamReader(options, None)
    assert again.partitions(end, end) == []
    last = again.latestOffset()
    assert [(part.parts[0].start, part.parts[0].end) for part in again.partitions(end, last)] == [(30, 50)]
    again.stop()
