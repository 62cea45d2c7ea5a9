"""The entries of the sink's table: golden bytes, order of keys, and what is refused."""

from __future__ import annotations

import pytest

from sarit.core.errors import Corrupt, Invalid
from sarit.spark.sink import records
from sarit.spark.sink.protocol import DECIDED, Record, Registration, Transaction

FIRST = Transaction("s/a", "00000000000000000000000000000001")
SECOND = Transaction("s/b", "ff000000000000000000000000000002")


def test_record_has_its_golden_bytes():
    assert records.record_key(258) == bytes.fromhex("01 0000000000000102" + 32 * "0")
    value = records.encode_record(Record(DECIDED, (FIRST, SECOND)))
    assert value == (
        b'{"version":1,"state":"decided","winners":{"s/a":["00000000000000000000000000000001"],'
        b'"s/b":["ff000000000000000000000000000002"]}}'
    )
    assert records.decode_record(value) == Record(DECIDED, (FIRST, SECOND))
    known = Record(DECIDED, (FIRST,), (("s/a", "0a" * 16),))
    assert records.encode_record(known) == (
        b'{"version":1,"state":"decided","winners":{"s/a":["00000000000000000000000000000001"]},'
        b'"created":{"s/a":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}}'
    )
    assert records.decode_record(records.encode_record(known)) == known


def test_registration_has_its_golden_bytes():
    key = records.registration_key(258, SECOND)
    assert key == bytes.fromhex("02 0000000000000102 ff000000000000000000000000000002")
    value = records.encode_registration(SECOND, 3, 1)
    assert value == b'{"version":1,"stream":"s/b","partition":3,"attempt":1}'
    assert records.decode_registration(key, value) == Registration(258, SECOND)


def test_oldest_has_its_golden_bytes():
    assert bytes(25) == records.OLDEST_KEY
    assert records.encode_oldest(7) == b'{"version":1,"oldest":7}'
    assert records.decode_oldest(b'{"version":1,"oldest":7}') == 7


def test_keys_of_one_kind_are_in_the_order_of_their_batches():
    keys = [records.record_key(batch) for batch in (0, 1, 255, 256, 1 << 40)]
    assert keys == sorted(keys)
    first, last = records.records_before(256)
    assert [first <= key <= last for key in keys] == [True, True, True, False, False]
    first, last = records.registrations_until(255)
    assert first <= records.registration_key(255, SECOND) <= last < records.registration_key(256, FIRST)


def test_a_record_of_too_many_transactions_is_refused():
    many = tuple(Transaction("s/a", f"{number:032x}") for number in range(40_000))
    with pytest.raises(Invalid, match="coalesce"):
        records.encode_record(Record(DECIDED, many))


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":1,"state":"x","winners":{}}', b"\xff"]
)
def test_what_is_no_record_is_refused(value):
    with pytest.raises(Corrupt, match="stateTable"):
        records.decode_record(value)


def test_a_record_of_a_later_release_is_refused():
    with pytest.raises(Invalid, match="later release"):
        records.decode_record(b'{"version":2,"state":"done","winners":{}}')
