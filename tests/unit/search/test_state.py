"""What an index stores in the state of its job, and its settings."""

import json
from dataclasses import fields, replace

import pytest

from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.search.limits import MAX_SEARCH_SETTINGS_BYTES, MAX_STATE_BYTES
from sarit.search.mapping import Field, Kind, Mapping, from_document, to_document
from sarit.search.settings import SearchSettings, decode_settings
from sarit.search.state import IndexState, Shard, StoredFile, decode_shards, encode_shards

MAPPING = Mapping((Field("at", Kind.TIME), Field("a.b", Kind.TEXT)), "at")
CUT = StreamCut(StreamName("s", "t"), {SegmentId(0, 0): 17, SegmentId(1, 2): 1 << 40})
FILE = StoredFile("meta-1.json", "id/blob", 1 << 33, 12, 0xFFFFFFFF)
SHARD = Shard("a1", MAPPING, 5, -3, 1_700_000_000_000, CUT, (FILE, replace(FILE, name="x.idx", offset=0)), False, 7)
STATE = IndexState("ab" * 16, CUT, SHARD, replace(FILE, name="shards"), 4, 6, 1, 9, 1000, 3, 1_700_000_000_001)


def test_state_comes_back_as_it_was_stored():
    assert IndexState.decode(STATE.encode()) == STATE
    assert IndexState.decode(b"") == IndexState() == IndexState.decode(IndexState().encode())
    assert all(getattr(STATE, field.name) != field.default for field in fields(STATE))


def test_shards_come_back_as_they_were_stored():
    shards = [replace(SHARD, closed=True), replace(SHARD, id="b", mapping=Mapping()), replace(SHARD, id="c")]
    assert decode_shards(encode_shards(shards)) == shards
    assert decode_shards(encode_shards([])) == []


def test_state_of_the_largest_mapping_and_many_files_fits():
    # The settings of a job have room for this mapping; a shard in which nothing was merged for long has such files.
    mapping = Mapping(tuple(Field(f"some.longer.name.of.a.field.{at}", Kind.KEYWORD) for at in range(200)))
    SearchSettings(mapping).encode()
    names = [
        f"{at * 0x9E3779B97F4A7C15 * 0x9E3779B97F4A7C15 % (1 << 128):032x}.{ext}"
        for at in range(60)
        for ext in ("idx", "pos", "term", "fast", "store", "fieldnorm")
    ]
    files = tuple(
        StoredFile(name, "a" * 65, at * 987_654, 987_654, at * 0x9E3779B9 % (1 << 32)) for at, name in enumerate(names)
    )
    cut = StreamCut(StreamName("s", "t"), {SegmentId(at, at): at * 10**12 for at in range(1000)})
    state = replace(STATE, cut=cut, growing=replace(SHARD, mapping=mapping, files=files, end=cut))
    assert IndexState.decode(state.encode()) == state


def test_state_that_is_too_long_is_refused():
    names = (f"{at * 0x9E3779B97F4A7C15 * 0x9E3779B97F4A7C15 % (1 << 128):032x}" for at in range(5000))
    files = tuple(replace(FILE, name=name) for name in names)
    with pytest.raises(Invalid, match=f"at most {MAX_STATE_BYTES}"):
        replace(STATE, growing=replace(SHARD, files=files)).encode()


def test_damaged_states_are_corrupt():
    for decode, good in ((IndexState.decode, STATE.encode()), (decode_shards, encode_shards([SHARD]))):
        for at in range(0, len(good), 7):
            for bad in (good[:at], good[:at] + bytes((good[at] ^ 0x41,)) + good[at + 1 :]):
                if bad:
                    with pytest.raises(Corrupt, match="damaged"):
                        decode(bad)
        with pytest.raises(Corrupt, match="its format is 2"):
            decode(b"\2" + good[1:])


def test_mapping_comes_back_as_it_was_given():
    assert from_document(json.loads(json.dumps(to_document(MAPPING)))) == MAPPING
    assert from_document({}) == Mapping()


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "has to be a JSON object"),
        ({"field": {}}, "unknown part 'field'"),
        ({"fields": []}, "`fields` has to be an object"),
        ({"time_field": 1}, "`time_field` a string"),
        ({"fields": {"a": "int"}}, "unknown kind: text, keyword, number, time, boolean"),
        ({"fields": {"a": ["text"]}}, "unknown kind"),
        ({"fields": {"": "text"}}, "1 to 256 printable"),
        ({"fields": {"a\nb": "text"}}, "1 to 256 printable"),
        ({"fields": {"a" * 257: "text"}}, "1 to 256 printable"),
        ({"fields": {str(at): "text" for at in range(201)}}, "201 fields: at most 200"),
        ({"fields": {"a": "text"}, "time_field": "a"}, "not among its fields of times"),
        ({"time_field": "a"}, "not among its fields of times"),
    ],
)
def test_mappings_that_are_refused(document, problem):
    with pytest.raises(Invalid, match=problem):
        from_document(document)


def test_settings_come_back_as_they_were_given():
    for settings in (SearchSettings(), SearchSettings(MAPPING, "tail", 60)):
        assert decode_settings(settings.encode()) == settings
    assert decode_settings(b"") == decode_settings(b"{}") == SearchSettings()


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"starts": "head"}', "unknown field 'starts': there are interval_seconds, mapping, start"),
        (b'{"start": 1}', "`start` has to be a string"),
        (b'{"start": "middle"}', "cannot start at 'middle': head, tail"),
        (b'{"interval_seconds": 0}', "cannot be 0 seconds: choose 1 to 3600"),
        (b'{"interval_seconds": 3601}', "choose 1 to 3600"),
        (b'{"interval_seconds": true}', "a whole number"),
        (b'{"mapping": 7}', "has to be a JSON object"),
        (b'"' + b"x" * MAX_SEARCH_SETTINGS_BYTES + b'"', "at most"),
    ],
)
def test_settings_that_are_refused(document, problem):
    with pytest.raises(Invalid, match=problem):
        decode_settings(document)
