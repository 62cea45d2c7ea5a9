"""Feeds of tables against a list of all batches: what they give is true, and what they have forgotten they say so."""

import random

import pytest

from sarit.store.container import table_feeds
from sarit.store.container.operations import Entry, UpdateTable, serialized_bytes
from sarit.store.container.table_feeds import TableFeeds


def batch(segment, at, number, count):
    entries = []
    for index in range(count):
        entries.append(Entry(b"k%d" % index, None if index % 3 == 2 else b"v%d" % number, at))
        at += serialized_bytes(entries[-1])
    return UpdateTable(segment, at, 0, tuple(entries))


@pytest.mark.parametrize("seed", range(20))
def test_feeds_give_whole_batches_in_order_or_say_that_they_forgot(seed, monkeypatch):
    monkeypatch.setattr(table_feeds, "TABLE_FEED_BYTES", 3000)
    monkeypatch.setattr(table_feeds, "MAX_FOLLOWED_TABLES", 3)
    chance = random.Random(seed)
    feeds = TableFeeds()
    history = {segment: [] for segment in range(5)}
    length = dict.fromkeys(history, 0)
    known = lost = 0
    for number in range(400):
        segment = chance.randrange(5)
        if chance.random() < 0.6:
            operation = batch(segment, length[segment], number, chance.randrange(4))
            feeds.note(operation)
            if operation.entries:
                history[segment].append(operation)
            length[segment] = operation.length
            continue
        behind = chance.randrange(6)
        position = (
            history[segment][-behind].entries[0].version if 0 < behind <= len(history[segment]) else length[segment]
        )
        found = feeds.read(segment, length[segment], position, 1000)
        if found is None:
            lost += 1
            continue
        known += behind > 0
        rows, until = found
        expected = [one for one in history[segment] if position < one.length <= until]
        assert rows == [entry for one in expected for entry in one.entries]
        assert until == (expected[-1].length if expected else position)
        assert len(feeds) <= 3
    assert known
    assert lost


def test_what_is_kept_of_all_tables_is_bounded(monkeypatch):
    monkeypatch.setattr(table_feeds, "TABLE_FEED_BYTES", 3000)
    feeds = TableFeeds()
    lengths = {1: 0, 2: 0}
    for segment in lengths:
        feeds.read(segment, 0, 0, 1000)
    for number in range(100):
        for segment in lengths:
            operation = batch(segment, lengths[segment], number, 2)
            feeds.note(operation)
            lengths[segment] = operation.length
    assert repr(feeds) == "<TableFeeds of 2 tables, 2664 bytes>"
