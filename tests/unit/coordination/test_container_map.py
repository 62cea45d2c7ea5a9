"""The container map: its changes, its bytes, its bounds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.coordination.container_map import (
    ContainerMap,
    StoreAddress,
    decode_map,
    decode_store,
    encode_map,
    encode_store,
)
from sarit.core.errors import Invalid

A = StoreAddress("10.0.0.1", 12345, "m1", 7)
B = StoreAddress("10.0.0.2", 12345, "m2", 8, weight=3, leaving=True)
MAP = ContainerMap(5, {"a": A, "b": B}, ("a", "b", None, "b"), {3: "a"})

# Golden vector of docs/formats/container-map.md.
GOLDEN = bytes.fromhex(
    "01" "0000000000000005" "0002"
    "0161" "0831302e302e302e31" "026d31" "3039" "0000000000000007" "0001" "00"
    "0162" "0831302e302e302e32" "026d32" "3039" "0000000000000008" "0003" "01"
    "0004" "0000" "0001" "ffff" "0001"
    "0001" "0003" "0000"
)  # fmt: skip

names = st.text("abcdef-#01", min_size=1, max_size=9)
addresses = st.builds(
    StoreAddress, names, st.integers(0, 65535), names, st.integers(0, 2**64 - 1), st.integers(0, 1000), st.booleans()
)


@st.composite
def maps(draw) -> ContainerMap:
    stores = draw(st.dictionaries(names, addresses, max_size=5))
    owner = st.sampled_from([None, *sorted(stores)])
    owners = tuple(draw(st.lists(owner, max_size=9)))
    moving = {}
    if stores and owners:
        source = st.sampled_from(sorted(stores))
        moving = draw(st.dictionaries(st.integers(0, len(owners) - 1), source, max_size=4))
    return ContainerMap(draw(st.integers(0, 2**63)), stores, owners, moving)


def test_bytes_of_a_map_are_those_of_the_format():
    assert encode_map(MAP) == GOLDEN
    assert decode_map(GOLDEN) == MAP


@given(maps())
def test_map_decodes_to_what_was_encoded(record):
    assert decode_map(encode_map(record)) == record


@given(addresses, st.integers(0, 1024))
def test_store_decodes_to_what_was_encoded(address, opening):
    member = replace(address, opening=opening)
    assert decode_store(encode_store(member)) == member


def test_bytes_of_a_member_are_those_of_the_format():
    assert encode_store(replace(A, opening=3)) == b"\1" + GOLDEN[13:38] + b"\0\3"


@given(maps(), st.data())
def test_cut_or_longer_bytes_are_refused(record, data):
    raw = encode_map(record)
    with pytest.raises(Invalid):
        decode_map(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(Invalid, match="too many"):
        decode_map(raw + b"\0")


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(raw):
    for decode in (decode_map, decode_store):
        for data in (raw, b"\1" + raw):
            try:
                decode(data)
            except Invalid:
                continue


@pytest.mark.parametrize("decode", [decode_map, decode_store])
def test_newer_format_is_refused_by_name(decode):
    with pytest.raises(Invalid, match="newer version of Sarit"):
        decode(b"\2" + bytes(40))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (ContainerMap(1, {}, (None,) * 1025), "too large"),
        (ContainerMap(1, {str(number): A for number in range(1001)}, ()), "too large"),
        (ContainerMap(1, {"a": A}, ("b",)), "whose address it has not"),
        (ContainerMap(1, {"a": A}, ("a",), {0: "b"}), "whose address it has not"),
        (ContainerMap(1, {"x" * 256: A}, ()), "1 to 255 bytes"),
        (ContainerMap(1, {"": A}, ()), "1 to 255 bytes"),
        (ContainerMap(1, {"a": StoreAddress("h", 70000, "m", 1)}, ()), "cannot be stored"),
        (ContainerMap(1, {"a": StoreAddress("h", 1, "m", 1, weight=1001)}, ()), "weight of 0 to 1000"),
    ],
)
def test_map_beyond_a_bound_is_refused(record, reason):
    with pytest.raises(Invalid, match=reason):
        encode_map(record)


def test_moving_container_is_served_by_its_old_owner():
    assert MAP.serving(3) == "a"
    assert MAP.serving(1) == "b"
    assert MAP.serving(2) is None
    assert MAP.address(3) == A
    assert MAP.address(2) is None


def test_revoked_container_is_served_by_nobody():
    revoked = ContainerMap(6, MAP.stores, ("a", "b", None, None), {3: "a"})
    assert revoked.serving(3) is None
    assert not revoked.leaves(3, "a")
    assert MAP.leaves(3, "a")
    assert not MAP.leaves(3, "b")
    assert not revoked.named(3, "a", 7)


def test_only_the_named_start_of_the_owner_may_open():
    assert MAP.named(0, "a", 7)
    assert not MAP.named(0, "a", 6)  # an earlier start of the same store
    assert not MAP.named(0, "b", 8)
    assert not MAP.named(3, "b", 8)  # not before the old owner has released it
    assert not MAP.named(3, "a", 7)
    assert not MAP.named(0, "c", 7)


def test_release_ends_the_move_of_that_source_only():
    after = MAP.released(3, "a")
    assert (after.version, after.moving, after.owners) == (6, {}, MAP.owners)
    assert after.named(3, "b", 8)
    assert MAP.released(3, "b") is MAP
    assert MAP.released(0, "a") is MAP


def test_fenced_owner_gets_a_newer_version():
    assert MAP.fenced(0, "a", 5).version == 6
    assert MAP.fenced(0, "a", 4) is MAP  # the map is newer than the one it was fenced under
    assert MAP.fenced(0, "b", 5) is MAP  # not the owner any more
    assert MAP.fenced(3, "a", 5) == MAP.released(3, "a")  # it was giving it away
