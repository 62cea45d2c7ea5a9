"""`sarit txn`, `sarit stream scale` and `epochs`, as a user types them."""

from __future__ import annotations

import json

import sarit as client_library
from tests.nodes import RunningNode
from tests.test_cli import sarit


def test_transaction_and_segment_commands(tmp_path):
    with RunningNode(tmp_path / "node") as node, client_library.connect(node.controller) as client:
        client.create_scope("shop")
        client.create_stream("shop/orders", segments=2)
        writer = client.transactional_writer("shop/orders")
        kept, dropped = writer.begin(), writer.begin()
        for transaction in (kept, dropped):
            transaction.write(f"{transaction is kept}")
            transaction.flush()
        assert sarit(node, "txn", "status", "shop/orders", str(kept.id))[0] == "open\n"
        assert sarit(node, "txn", "commit", "shop/orders", str(kept.id))[0] == f"transaction {kept.id} committed\n"
        sarit(node, "txn", "abort", "shop/orders", str(dropped.id))
        assert sarit(node, "read", "shop/orders")[0] == "True\n"
        rows = json.loads(sarit(node, "txn", "list", "shop/orders", "--format", "json")[0])
        assert rows == [
            {"transaction": str(kept.id), "status": "committed"},
            {"transaction": str(dropped.id), "status": "aborted"},
        ]
        assert "was committed" in sarit(node, "txn", "abort", "shop/orders", str(kept.id), code=1)[1]
        assert "no id of a transaction" in sarit(node, "txn", "status", "shop/orders", "nonsense", code=1)[1]
        assert "does not exist" in sarit(node, "txn", "list", "shop/none", code=1)[1]

        sarit(node, "stream", "scale", "shop/orders", "--segments", "4")
        found = json.loads(sarit(node, "stream", "info", "shop/orders", "--format", "json")[0])["segments"]
        assert [row["segment"] for row in found] == [f"{n}.#epoch.1" for n in range(2, 6)]
        sarit(node, "stream", "scale", "shop/orders", "--split", "3.#epoch.1", "--into", "3")
        sarit(node, "stream", "scale", "shop/orders", "--merge", "4.#epoch.1", "--merge", "5.#epoch.1")
        epochs = json.loads(sarit(node, "stream", "epochs", "shop/orders", "--format", "json")[0])
        assert [len([r for r in epochs if r["epoch"] == n]) for n in range(4)] == [2, 4, 6, 5]
        assert epochs[-1] == {"epoch": 3, "segment": "9.#epoch.3", "low": 0.5, "high": 1.0}
        assert "is not active" in sarit(node, "stream", "scale", "shop/orders", "--split", "0.#epoch.0", code=1)[1]
        assert "NUMBER" in sarit(node, "stream", "scale", "shop/orders", "--split", "x", code=2)[1]
        assert "give one of" in sarit(node, "stream", "scale", "shop/orders", code=2)[1]


def test_truncated_events_are_an_error_or_skipped(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        sarit(node, "write", "shop/orders", "--create", stdin="one\ntwo\n")
        head = sarit(node, "read", "shop/orders", "--limit", "1", "--print-cut")
        start = json.loads(sarit(node, "stream", "info", "shop/orders", "--format", "json")[0])["head"]
        sarit(node, "stream", "truncate", "shop/orders", head[1].strip())
        assert "was truncated and begins at" in sarit(node, "read", "shop/orders", "--from", start, code=1)[1]
        assert sarit(node, "read", "shop/orders", "--from", start, "--skip-truncated")[0] == "two\n"


def test_events_are_read_from_a_time_on(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        sarit(node, "write", "shop/orders", "--create", stdin="one\ntwo\n")
        # No cut is recorded yet: everything is from shortly before.
        for start in ("-10 minutes", "2026-01-31T12:00:00+01:00", "1769860800000"):
            assert sarit(node, "read", "shop/orders", "--from", start)[0] == "one\ntwo\n"
        assert "no unit of time" in sarit(node, "read", "shop/orders", "--from", "-10 moons", code=1)[1]
        assert "add Z for UTC" in sarit(node, "read", "shop/orders", "--from", "2026-01-31T12:00:00", code=1)[1]
        assert "does not exist" in sarit(node, "read", "shop/none", "--from", "-1h", code=1)[1]


def test_stream_update_changes_and_shows_scaling_and_retention(tmp_path):
    def changed(*words):
        return json.loads(sarit(node, "stream", "update", "shop/orders", *words, "--format", "json")[0])

    with RunningNode(tmp_path / "node") as node:
        sarit(node, "stream", "create", "shop/orders", "--create-scope", "--tag", "blue")
        found = changed("--keep-seconds", "60", "--keep-at-most", "3600")
        assert found["retention"] == {"type": "time", "unit": "ms", "limit": 60_000, "maximum": 3_600_000}
        found = changed("--events-per-second", "100")
        assert (found["scaling"]["type"], found["scaling"]["target_rate"]) == ("events_per_second", 100)
        assert found["retention"]["type"] == "time"  # what is not named stays
        assert found["tags"] == ["blue"]
        text = sarit(node, "stream", "info", "shop/orders")[0]
        assert "scaling   100 events per second and segment, at least 1 segment\n" in text
        assert "retention keeps 60 seconds, at most 3,600 seconds\n" in text
        assert changed("--fixed")["scaling"]["type"] == "fixed"
        assert changed("--keep-bytes", "1")["retention"] == {"type": "size", "unit": "bytes", "limit": 1, "maximum": 0}
        assert "retention keeps 1 byte\n" in sarit(node, "stream", "info", "shop/orders")[0]
        assert changed("--keep-all")["retention"]["type"] == "none"
        assert "at least one setting" in sarit(node, "stream", "update", "shop/orders", code=2)[1]
        for wrong in (
            ("--keep-all", "--keep-bytes", "5"), ("--fixed", "--events-per-second", "5"), ("--keep-at-most", "5"),
            ("--keep-seconds", "5", "--keep-bytes", "5"), ("--tag", "a", "--no-tags"),
        ):  # fmt: skip
            sarit(node, "stream", "update", "shop/orders", *wrong, code=2)
        error = sarit(node, "stream", "update", "shop/orders", "--keep-bytes", "9", "--keep-at-most", "5", code=1)[1]
        assert "keeps at least 9" in error


def test_properties_are_set_shown_and_removed(tmp_path):
    def shown():
        return json.loads(sarit(node, "stream", "info", "shop/orders", "--format", "json")[0])["properties"]

    with RunningNode(tmp_path / "node") as node:
        create = ("stream", "create", "shop/orders", "--create-scope", "--property")
        for wrong in ("time-unit", "time-unit=weeks", "team=x", "=x"):
            sarit(node, *create, wrong, code=2)
        assert json.loads(sarit(node, "stream", "list", "--format", "json")[0]) == []
        sarit(node, *create, "time-unit=seconds", "--property", "example.com.query=a=b")
        assert shown() == {"time-unit": "seconds", "example.com.query": "a=b"}
        text = sarit(node, "stream", "info", "shop/orders")[0]
        assert text.endswith("properties example.com.query=a=b, time-unit=seconds\n")
        update = ("stream", "update", "shop/orders", "--property")
        sarit(node, *update, "example.com.query=", "--tag", "blue")
        assert shown() == {"time-unit": "seconds"}
        sarit(node, *update, "time-unit=none")
        assert shown() == {"time-unit": "none"}
        error = sarit(node, *update, "time-unit=none", "--property", "time-unit=seconds", code=2)[1]
        assert "each name once" in error


def test_stream_info_counts_bytes_by_segment_and_in_total(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        sarit(node, "write", "shop/orders", "--create", stdin="one\ntwo\n")
        found = json.loads(sarit(node, "stream", "info", "shop/orders", "--format", "json")[0])
        assert (found["bytes"], [row["bytes"] for row in found["segments"]]) == (22, [22])
        sarit(node, "stream", "scale", "shop/orders", "--segments", "2")
        sarit(node, "write", "shop/orders", "--key", "a", stdin="three\n")
        found = json.loads(sarit(node, "stream", "info", "shop/orders", "--format", "json")[0])
        assert (found["bytes"], sorted(row["bytes"] for row in found["segments"])) == (35, [0, 13])
        text = sarit(node, "stream", "info", "shop/orders")[0]
        assert "earlier   1 sealed segment  22 bytes\n" in text
        assert "total     35 bytes\n" in text
        first = sarit(node, "read", "shop/orders", "--limit", "1", "--print-cut")[1].strip()
        sarit(node, "stream", "truncate", "shop/orders", first)
        assert json.loads(sarit(node, "stream", "info", "shop/orders", "--format", "json")[0])["bytes"] == 24


def test_stream_list_without_scope_lists_all(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        for name in ("a/one", "b/two"):
            sarit(node, "stream", "create", name, "--create-scope")
        rows = json.loads(sarit(node, "stream", "list", "--format", "json")[0])
        assert rows == [{"stream": "a/one"}, {"stream": "b/two"}]
