"""The change feed of a table has every change once and in order, whenever its feeder dies."""

from __future__ import annotations

import json
import threading

import pytest

import sarit
from examples.table_change_feed import feed
from tests.nodes import RunningNode

ACCOUNTS = ("anna", "bert", "carl")
DEPOSITS = 40


def deposit(address: str) -> None:
    with sarit.connect(address) as client:
        table = client.table("bank/accounts")
        for number in range(DEPOSITS):
            feed.change(table, ACCOUNTS[number % 3], lambda balance: (balance or 0) + 1)


def dies(*_: object) -> None:
    raise InterruptedError("the feeder dies before it removes the notes")


def test_every_change_is_written_once_and_in_order(tmp_path) -> None:
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        feed.create(client, "bank/accounts")
        depositing = [threading.Thread(target=deposit, args=(node.controller,)) for _ in range(2)]
        for thread in depositing:
            thread.start()
        written = lives = 0
        while any(thread.is_alive() for thread in depositing):
            lives += 1
            feeder = feed.Feeder(client, "bank/accounts")
            written += feeder.feed()
            feeder._forget = dies  # type: ignore[method-assign]
            before = len(list(client.reader(feed.changes_of("bank/accounts"), end="tail")))
            with pytest.raises(InterruptedError):
                feeder.feed()
            written += len(list(client.reader(feed.changes_of("bank/accounts"), end="tail"))) - before
            feeder.close()
        for thread in depositing:
            thread.join()
        feeder = feed.Feeder(client, "bank/accounts")
        written += feeder.feed()
        feeder.close()
        events = [json.loads(event) for event in client.reader(feed.changes_of("bank/accounts"), end="tail")]
        assert written == len(events) == 2 * DEPOSITS
        for account in ACCOUNTS:
            mine = [event["number"] for event in events if event["key"] == account]
            assert mine == list(range(1, len(mine) + 1))
        left = list(client.table("bank/accounts").scan())
        assert [entry.secondary for entry in left] == [feed.STATE.encode()] * 3, "no note is left"
        assert sum(json.loads(entry.value)["value"] for entry in left) == 2 * DEPOSITS
        assert lives > 1


def test_feed_continues_after_truncation_of_stream(tmp_path) -> None:
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        feed.create(client, "bank/accounts")
        changes = feed.changes_of("bank/accounts")
        table = client.table("bank/accounts")

        def change() -> None:
            for _ in range(3):
                feed.change(table, "anna", lambda balance: (balance or 0) + 1)

        def numbers() -> list[int]:
            return [json.loads(event)["number"] for event in client.reader(changes, end="tail")]

        change()
        first = feed.Feeder(client, "bank/accounts")
        assert first.feed() == 3
        first.close()
        client.truncate_stream(changes, cut=client.stream_cut_tail(changes))
        change()
        second = feed.Feeder(client, "bank/accounts")
        seen_late = [entry for entry in table.scan() if entry.secondary != feed.note_of(4).encode()]
        with pytest.MonkeyPatch.context() as early:
            early.setattr(second._table, "scan_keys", lambda: seen_late)
            assert second.feed() == 0, "a scan that was too early for the first of them"
        assert second.feed() == 3
        assert numbers() == [4, 5, 6]
        second.close()
