"""What becomes of events: arrays where the type allows, else lists; what does not fit is named or left out."""

from __future__ import annotations

import datetime
import io
import json
import pickle

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from sarit.core.errors import Corrupt, Invalid
from sarit.serializers.payload_columns import json_columns, registered_columns
from sarit.training.tensors import Form, column_values
from tests.unit.serializers.memory_schemas import MemorySchemas

AVRO = {
    "type": "record",
    "name": "Sample",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "score", "type": "double"},
        {"name": "good", "type": "boolean"},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]}},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def events(values: list[bytes]) -> pa.RecordBatch:
    offsets = np.cumsum([0, *(len(value) + 8 for value in values[:-1])]) if values else np.zeros(0, np.int64)
    arrays = [pa.array(values, pa.binary()), pa.array([3] * len(values), pa.int64()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, names=["event", "segment", "offset"])


def test_events_of_one_length_are_arrays_also_in_a_slice() -> None:
    form = Form("<i2", (2,), positions=True)
    batch = events([np.array([n, n + 1], "<i2").tobytes() for n in range(9)]).slice(2, 5)
    found = form.values(batch)
    assert found["value"].tolist() == [[n, n + 1] for n in range(2, 7)]
    assert found["offset"].tolist() == [24, 36, 48, 60, 72]
    found["value"] += 1
    found["offset"] += 1
    assert form.values(batch)["value"].tolist() == [[n, n + 1] for n in range(2, 7)]


def test_event_of_another_length_is_named_or_left_out() -> None:
    batch = events([b"1234", b"12345", b"6789", b""])
    with pytest.raises(Corrupt, match="the event at 12 of segment 3 has 5 bytes where 4 are needed"):
        Form("u1", (4,)).values(batch)
    skipping = Form("u1", (4,), on_error="skip", positions=True).values(batch)
    assert bytes(skipping["value"].reshape(-1)) == b"12346789"
    assert skipping["offset"].tolist() == [0, 25]
    assert Form("u1", (4,), on_error="skip").values(events([b""]))["value"].shape == (0, 4)


def test_columns_of_a_registry_are_arrays() -> None:
    schemas = MemorySchemas()
    number = schemas.add("s.t", json.dumps(AVRO))
    columns = registered_columns(schemas, "s.t", "confluent")
    payloads = []
    for row in range(5):
        out = io.BytesIO()
        at = datetime.datetime.fromtimestamp(row, datetime.UTC)
        record = {"id": row, "score": row / 2, "good": row % 2 == 0, "digest": bytes([row] * 4), "at": at}
        fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {**record, "place": {"x": row}, "note": None})
        payloads.append(b"\0" + number.to_bytes(4, "big") + out.getvalue())
    form = pickle.loads(pickle.dumps(Form(columns=columns)))
    found = form.values(events(payloads))
    assert found["id"].tolist() == list(range(5))
    assert found["score"].dtype == np.float64
    assert found["good"].tolist() == [True, False, True, False, True]
    assert found["place"]["x"].tolist() == [0, 1, 2, 3, 4]
    assert found["at"].dtype == np.int64
    assert np.diff(found["at"]).min() == np.diff(found["at"]).max() > 0
    assert found["note"] == [None] * 5
    assert [bytes(value) for value in found["digest"]] == [bytes([row] * 4) for row in range(5)]
    with pytest.raises(Corrupt, match="the event at .* does not fit: .*leaves such events out"):
        form.values(events([*payloads, b"\0\0\0\0\x09"]))
    skipping = Form(columns=columns, on_error="skip", positions=True).values(events([b"", *payloads]))
    assert skipping["id"].tolist() == list(range(5))
    assert len(skipping["offset"]) == 5


def test_types_of_columns() -> None:
    table = pa.RecordBatch.from_pydict(
        {
            "f": pa.array([1.5, None], pa.float32()),
            "d": pa.array([0, 86_400_000], pa.date64()),
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
            "vector": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.int16(), 3)),
            "list": pa.array([[1], [2, 3]], pa.list_(pa.int16())),
            "text": ["x", None],
            "empty": pa.array([None, b"ab"], pa.binary(2)),
        }
    )
    found = column_values(table)
    assert np.isnan(found["f"]).tolist() == [False, True]
    assert found["d"].tolist() == [0, 86_400_000]
    assert found["fixed"].tolist() == [[97, 98], [99, 100]]
    assert (found["vector"].shape, found["vector"].dtype) == ((2, 3), np.int16)
    assert found["list"] == [[1], [2, 3]]
    assert found["text"] == ["x", None]
    assert found["empty"] == [None, b"ab"]
    assert column_values(table.slice(1))["fixed"].tolist() == [[99, 100]]
    assert column_values(table.slice(1))["vector"].tolist() == [[4, 5, 6]]


def test_missing_integer_is_refused_by_name() -> None:
    columns = json_columns(pa.schema([("x", pa.struct([("y", pa.int64())]))]))
    with pytest.raises(Invalid, match=r"column x\.y lacks 1 values"):
        Form(columns=columns).values(events([b'{"x": {"y": 1}}', b'{"x": {}}']))
