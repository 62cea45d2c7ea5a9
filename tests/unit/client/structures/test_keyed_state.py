"""The state of shared maps and sets: its bytes, and random updates against a dictionary."""

from __future__ import annotations

import random

import pytest

from sarit.client.structures import keyed_state
from sarit.client.structures.formats import MAP, SET
from sarit.client.structures.keyed_state import EMPTY, KeyedState, Stored
from sarit.client.structures.limits import MAX_SHARED_KEY_BYTES, MAX_SHARED_STATE_BYTES
from sarit.client.sync.revisioned_stream import Revision
from sarit.core.errors import Corrupt, Invalid

FIRST = Revision(0)


def applied(state: KeyedState, *updates: bytes) -> KeyedState:
    for update in updates:
        state = keyed_state.apply(state, update, FIRST)
    return state


def test_bytes_of_a_map() -> None:
    state = applied(EMPTY, keyed_state.put(b"b", b"xy"), keyed_state.put(b"a", b""), keyed_state.remove(b"c"))
    changes, first, second = (
        "0000000000000003",
        "0000000100000000000000000000000261",
        "00000001000000020000000000000001627879",
    )
    assert keyed_state.encode(MAP, state) == b"m\x01" + bytes.fromhex(changes + first + second)
    again = keyed_state.decode(MAP, keyed_state.encode(MAP, state))
    assert (again.items(), again.changes, again.count, again.size) == (state.items(), 3, 2, 36)
    assert keyed_state.put(b"key", b"v") == b"p\x00\x00\x00\x03keyv"
    assert keyed_state.remove(b"key") == b"rkey"


def test_random_updates_give_what_a_dictionary_has() -> None:
    rng = random.Random(1)
    state, model = EMPTY, {}
    followed: dict[bytes, Stored] = {}
    before = None
    for changes in range(1, 3001):
        key = b"%d" % rng.randrange(400)
        if rng.random() < 0.6:
            value = rng.randbytes(rng.randrange(4))
            model[key] = Stored(value, changes)
            old, state = state, applied(state, keyed_state.put(key, value))
        else:
            model.pop(key, None)
            old, state = state, applied(state, keyed_state.remove(key))
        assert old.get(key) != state.get(key) or (old.get(key), state.get(key)) == (None, None), "the old one changed"
        if changes % 50 == 0:
            assert state.items() == sorted(model.items())
            assert (state.count, state.changes) == (len(model), changes)
            assert len(keyed_state.encode(MAP, state)) == 2 + 8 + state.size
            found = state.differences(before)
            versions = [stored.version for _, stored in found if stored is not None]
            assert versions == sorted(versions)
            for key, stored in found:
                followed.pop(key, None)
                if stored is not None:
                    followed[key] = stored
            assert followed == model
            assert len({key for key, _ in found}) == len(found)
            before = state
        if changes % 500 == 0:
            state = keyed_state.decode(MAP, keyed_state.encode(MAP, state))
    assert state.differences(state) == []


BROKEN = [b"", b"m", b"m\x01", b"m\x01" + bytes(7), b"m\x01" + bytes(9), b"m\x01" + bytes(8) + bytes(16)]


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_bytes_are_refused(broken: bytes) -> None:
    with pytest.raises(Corrupt):
        keyed_state.decode(MAP, broken)


def test_every_cut_and_every_changed_length_is_refused_or_harmless() -> None:
    state = applied(EMPTY, *(keyed_state.put(b"%d" % n, bytes(n)) for n in range(5)))
    whole = keyed_state.encode(MAP, state)
    rng = random.Random(2)
    for _ in range(2000):
        broken = bytearray(whole[: rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(3)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            found = keyed_state.decode(MAP, bytes(broken))
        except (Corrupt, Invalid):
            continue
        assert keyed_state.decode(MAP, keyed_state.encode(MAP, found)).items() == found.items()
    twice = whole + whole[10:27]  # the first entry, again
    with pytest.raises(Corrupt):
        keyed_state.decode(MAP, twice)


@pytest.mark.parametrize("broken", [b"", b"x", b"p", b"p\x00\x00\x00", b"p\x00\x00\x00\x02k", b"p\xff\xff\xff\xffkk"])
def test_broken_updates_are_refused(broken: bytes) -> None:
    with pytest.raises(Corrupt):
        keyed_state.apply(EMPTY, broken, FIRST)


def test_name_of_another_structure_says_so() -> None:
    with pytest.raises(Invalid, match="this name is a shared map, not a set: choose another one"):
        keyed_state.decode(SET, keyed_state.encode(MAP, EMPTY))


def test_what_is_too_large_is_refused_and_may_shrink() -> None:
    assert keyed_state.check_key(bytes(MAX_SHARED_KEY_BYTES), "the key") == bytes(MAX_SHARED_KEY_BYTES)
    with pytest.raises(Invalid, match="the key has at most 1024 bytes, not 1025"):
        keyed_state.check_key(bytes(MAX_SHARED_KEY_BYTES + 1), "the key")
    fits = MAX_SHARED_STATE_BYTES - 16 - 1
    keyed_state.check_size(EMPTY, [(b"a", bytes(fits))], "the map")
    with pytest.raises(Invalid, match="the map would have 4194305 bytes, of at most 4194304"):
        keyed_state.check_size(EMPTY, [(b"a", bytes(fits + 1))], "the map")
    full = applied(EMPTY, keyed_state.put(b"a", bytes(fits + 100)))
    keyed_state.check_size(full, [(b"a", bytes(fits + 99))], "the map")
    with pytest.raises(Invalid):
        keyed_state.check_size(full, [(b"b", b"")], "the map")
