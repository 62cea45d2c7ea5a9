"""What an indexer decides: fields of the next shard, and states after a commit."""

from dataclasses import replace

from sarit.search.index_plan import Uncommitted, blobs_of, committed, merged
from sarit.search.limits import MAX_MAPPED_FIELDS, MAX_SEARCH_SETTINGS_BYTES
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.settings import SearchSettings
from sarit.search.state import IndexState
from tests.unit.search.test_state import CUT, FILE, SHARD, STATE


def of(*kinds: tuple[str, Kind], time_field: str = "") -> Mapping:
    return Mapping(tuple(Field(path, kind) for path, kind in kinds), time_field)


def test_new_fields_come_with_the_next_shard_and_old_ones_keep_their_kinds():
    before = of(("a", Kind.KEYWORD), ("b", Kind.NUMBER))
    assert merged(None, before) == before
    assert merged(before, Mapping()) == before
    found = merged(before, of(("a", Kind.TEXT), ("c", Kind.BOOLEAN)))
    assert found == of(("a", Kind.KEYWORD), ("b", Kind.NUMBER), ("c", Kind.BOOLEAN))


def test_time_field_stays_and_may_come_later():
    with_time = of(("at", Kind.TIME), time_field="at")
    assert merged(of(("a", Kind.TEXT)), with_time).check().time_field == "at"
    other = of(("ts", Kind.TIME), time_field="ts")
    assert merged(with_time, other).check() == of(("at", Kind.TIME), ("ts", Kind.TIME), time_field="at")
    # It was a field of another kind before.
    assert merged(of(("at", Kind.KEYWORD)), with_time).check() == of(("at", Kind.KEYWORD))


def test_fields_beyond_the_bounds_are_left_out():
    many = of(*((f"field {number}", Kind.TEXT) for number in range(MAX_MAPPED_FIELDS)))
    assert merged(many, of(("more", Kind.TEXT))) == many
    long = of(*((f"{number}" + "x" * 250, Kind.KEYWORD) for number in range(100)))
    found = merged(of(("a", Kind.TEXT)), long)
    assert 40 < len(found.fields) < 70
    assert len(SearchSettings(found).encode()) <= MAX_SEARCH_SETTINGS_BYTES


def test_commit_counts_what_was_added():
    added = Uncommitted(CUT, partly=2, lost_bytes=3)
    added.add_times([5, -9, 7])
    files = (FILE, replace(FILE, name="new", length=100))
    found = committed(STATE, added, SHARD, files, 1000, 42)
    assert (found.events, found.partly, found.lost_bytes) == (STATE.events + 3, STATE.partly + 2, STATE.lost_bytes + 3)
    assert (found.commits, found.committed_ms, found.stored_bytes) == (STATE.commits + 1, 42, 1000 + FILE.length + 100)
    shard = found.growing
    assert (shard.events, shard.first_ms, shard.last_ms) == (SHARD.events + 3, -9, SHARD.last_ms)
    assert (shard.end, shard.files, found.closed) == (CUT, files, STATE.closed)
    first = committed(IndexState("ab"), added, replace(SHARD, events=0, first_ms=0, last_ms=0), files, 0, 1).growing
    assert (first.events, first.first_ms, first.last_ms) == (3, -9, 7)
    assert committed(IndexState("ab"), Uncommitted(CUT, lost_bytes=7), None, (), 0, 1).growing is None


def test_blobs_of_a_state_are_those_of_all_its_files():
    closed = replace(SHARD, files=(replace(FILE, blob="old"),))
    state = replace(STATE, closed=replace(FILE, blob="list"))
    assert blobs_of(state, [closed]) == {"old", "list", FILE.blob}
    assert blobs_of(IndexState(), []) == set()
