"""The record of a chain: its bytes, and its transitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Invalid
from sarit.log.bookkeeper import chain as chains
from sarit.log.bookkeeper.chain import OPEN, Chain, ChainLedger
from sarit.log.bookkeeper.limits import MAX_CHAIN_LEDGERS

IDENTITY = b"i" * 16
numbers = st.integers(0, 2**63 - 1)
ledgers = st.builds(ChainLedger, numbers, numbers, st.one_of(st.just(OPEN), numbers), numbers)
any_chain = st.builds(
    Chain, st.binary(min_size=16, max_size=16), numbers, numbers, st.lists(ledgers, max_size=5).map(tuple),
    st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple),
)  # fmt: skip


@given(any_chain)
def test_chain_is_decoded_as_it_was_encoded(chain):
    assert chains.decode(chains.encode(chain)) == chain


@given(any_chain, st.data())
def test_damaged_chain_is_refused(chain, data):
    encoded = bytearray(chains.encode(chain))
    at = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[at // 8] ^= 1 << at % 8
    with pytest.raises((Corrupt, Invalid)):
        chains.decode(bytes(encoded))
    with pytest.raises((Corrupt, Invalid)):
        chains.decode(chains.encode(chain)[: data.draw(st.integers(0, len(encoded) - 1))])


def test_newer_format_says_what_to_do():
    with pytest.raises(Invalid, match="install a newer"):
        chains.decode(b"\x02" + chains.encode(Chain(IDENTITY))[1:])


def test_new_epoch_closes_open_ledgers_and_drops_empty_ones():
    chain = chains.begin_epoch(Chain(IDENTITY), 1, {}, 10)
    chain = chains.roll_over(chain, 11, 5)
    assert chain.open_ledgers == (10, 11)
    after = chains.begin_epoch(chain, 2, {10: (7, 700), 11: (4, 0)}, 12)
    assert after.ledgers == (ChainLedger(10, 1, 7, 700), ChainLedger(12, 8))
    assert after.retired == ((11, 0),)  # its fence is needed until it is deleted
    assert (after.epoch, after.reached) == (2, 7)


def test_only_ledgers_below_are_retired_and_what_was_reached_stays():
    chain = chains.begin_epoch(Chain(IDENTITY), 1, {}, 10)
    chain = chains.close(chains.roll_over(chain, 11, 5), 10, 4, 400)
    assert chains.retire(chain, 4, 77) == chain
    after = chains.retire(chain, 5, 77)
    assert [each.ledger for each in after.ledgers] == [11]
    assert after.retired == ((10, 77),)
    assert after.reached == 4
    assert chains.forget(after, frozenset([10])).retired == ()


def test_full_chain_takes_no_ledger():
    chain = Chain(IDENTITY, 1)
    for ledger in range(MAX_CHAIN_LEDGERS):
        chain = chains.close(chains.roll_over(chain, ledger, ledger + 1), ledger, ledger + 1, 1)
    with pytest.raises(Invalid, match="waits for a flush"):
        chains.roll_over(chain, 1000, 1000)
    assert len(chains.encode(chain)) < 16 * 1024
