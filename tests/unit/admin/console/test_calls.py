"""The calls of the console on a node."""

import asyncio
import base64
import re
from contextlib import aclosing

import pytest

from sarit.admin.console.assets import load
from sarit.admin.console.samplers import Sampler
from sarit.controller.jobs import JobKey, JobTable
from sarit.core.envelope import Envelope
from sarit.core.names import StreamName
from sarit.lake.settings import IcebergSettings
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.unit.admin.console.pages import API, serve_page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    yield from serve_page(tmp_path_factory.mktemp("console") / "node")


def test_a_stream_is_created_changed_sealed_and_deleted(run) -> None:
    async def test(page) -> None:
        policy = {"type": "events", "target": 100, "factor": 2, "segments": 3}
        body = {"scope": "made", "stream": "one", "scaling": policy, "tags": ["a"], "create_scope": True}
        assert (await page.send("POST", "/streams", body))["created"] is True
        assert (await page.send("POST", "/streams", body))["created"] is False
        (row,) = (await page.get("/streams", scope="made"))["rows"]
        assert row["scaling"] == policy
        assert (row["segments"], row["tags"], row["sealed"]) == (3, ["a"], False)
        one = "/streams/made/one"
        await page.send("PATCH", one, {"retention": {"type": "size", "limit": 1 << 20}, "tags": []})
        details = await page.get(one)
        assert details["retention"] == {"type": "size", "limit": 1 << 20, "maximum": 0}
        assert details["scaling"] == policy
        assert details["tags"] == []
        await page.send("POST", f"{one}/scale", {"segments": 4})
        found = await page.get(one)
        assert (found["epoch"], len(found["segments"])) == (1, 4)
        await page.send("DELETE", one, {}, 400)  # not confirmed
        await page.send("DELETE", one, {"confirm": "made/other"}, 400)
        await page.send("POST", f"{one}/seal", {})
        assert (await page.get(one))["sealed"] is True
        await page.send("DELETE", one, {"confirm": "made/one"})
        await page.get(one, 404)
        assert (await page.get("/streams", scope="made"))["total"] == 0

    run(test)


def test_page_of_a_stream_shows_its_iceberg_table(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/table")
        assert (await page.get("/streams/s/table"))["iceberg"] is None
        settings = IcebergSettings("lake.s.table", "json")
        key = JobKey("iceberg", StreamName("s", "table"), "main")
        await JobTable(page.node.controller.catalog).create(key, settings.encode())
        async with page.client.writer("s/table") as writer:
            writer.write(b"x" * 92)
        found = (await page.get("/streams/s/table"))["iceberg"]
        assert (found["table"], found["value"], found["rows"], found["state"]) == ("lake.s.table", "json", 0, "waiting")
        assert found["lag_bytes"] == 100  # with the header of the event

    run(test)


def test_page_of_a_stream_shows_its_search_index(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/log")
        assert (await page.get("/streams/s/log"))["search"] is None
        key = JobKey(SEARCH_KIND, StreamName("s", "log"), SEARCH_JOB)
        await JobTable(page.node.controller.catalog).create(key, SearchSettings(interval_seconds=7).encode())
        async with page.client.writer("s/log") as writer:
            writer.write(b"x" * 92)
        found = (await page.get("/streams/s/log"))["search"]
        assert (found["events"], found["interval_seconds"], found["state"]) == (0, 7, "waiting")
        assert (found["lag_bytes"], found["problem"]) == (100, None)  # with the header of the event

    run(test)


def test_lists_are_searched_and_cut_into_pages_by_the_node(run) -> None:
    async def test(page) -> None:
        await page.client.create_scope("many")
        for n in range(7):
            await page.client.create_stream(f"many/Stream-{n}")
        _calls(page).lists.changed()
        found = await page.get("/streams", scope="many", q="stream", offset=5, limit=3)
        assert (found["total"], [row["stream"] for row in found["rows"]]) == (7, ["Stream-5", "Stream-6"])
        assert (await page.get("/streams", q="Stream-3"))["total"] == 1
        assert (await page.get("/streams", q="nothing"))["rows"] == []
        for wrong in ({"limit": 0}, {"limit": 100_000}, {"offset": -1}, {"offset": "x"}):
            await page.get("/streams", 400, **wrong)

    run(test)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/streams", {"scope": "s", "stream": "a b", "scaling": {"type": "fixed"}}, 400),
        ("POST", "/streams", {"scope": "s", "stream": "a", "scaling": {"type": "odd"}}, 400),
        ("POST", "/streams", {"scope": "s", "stream": "a", "scaling": {"type": "events", "target": "9"}}, 400),
        ("POST", "/streams", {"scope": "s", "stream": "a", "scaling": {"type": "fixed", "segments": 0}}, 400),
        ("POST", "/streams", {"scope": "none", "stream": "a", "scaling": {"type": "fixed"}}, 404),
        ("POST", "/streams", ["no object"], 400),
        ("PATCH", "/streams/s/none", {"tags": ["x"]}, 404),
        ("PATCH", "/streams/s/none", {}, 400),
        ("POST", "/streams/s/none/events", {"text": "x"}, 404),
        ("POST", "/streams/s/none/events", {"base64": "***"}, 400),
        ("POST", "/streams/s/none/events", {"text": "\ud800"}, 400),
        ("POST", "/streams/s/none/events", {}, 400),
        ("POST", "/streams/s/none/truncate", {"cut": "what"}, 400),
        ("POST", "/streams/s/none/scale", {"split": "1"}, 400),
        ("POST", "/nothing", {}, 404),
        ("POST", "/scopes", {"scope": "a/b"}, 400),
    ],
)
def test_what_is_wrong_gets_one_reason(run, method, path, body, status) -> None:
    async def test(page) -> None:
        assert (await page.send(method, path, body, status))["error"]

    run(test)


def test_a_change_without_the_token_changes_nothing(run) -> None:
    async def test(page) -> None:
        reply = await page.http.post(f"{API}/scopes", json={"scope": "forged"})
        assert reply.status_code == 403
        assert "forged" not in (await page.get("/scopes"))["scopes"]
        _calls(page).lists.changed()
        assert "forged" not in (await page.get("/scopes"))["scopes"]

    run(test)


def test_a_body_must_be_json(run) -> None:
    async def test(page) -> None:
        headers = {"x-sarit-token": page.console.token, "content-type": "text/plain"}
        reply = await page.http.post(f"{API}/scopes", content='{"scope": "x"}', headers=headers)
        assert reply.status_code == 400

    run(test)


def test_events_that_were_written_are_shown_with_their_envelopes(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/events")
        one = "/streams/s/events"
        await page.send("POST", f"{one}/events", {"text": "<script>alert(1)</script>", "key": "k"})
        await page.send("POST", f"{one}/events", {"base64": base64.b64encode(b"\xff\x00").decode()})
        async with page.client.writer("s/events") as writer:
            writer.write(bytes(Envelope('{"a": 1}', key="me", event_time=5, headers={"h": b"v"})), key="me")
            writer.write(b"x" * 20_000)
            writer.write(b"\xf5" + bytes(Envelope("y"))[1:20])  # begins like an envelope, and is none
            await writer.flush()
        found = await page.get(f"{one}/events", limit=3)
        payloads = [base64.b64decode(event["payload"]["base64"]) for event in found["events"]]
        assert payloads == [b"<script>alert(1)</script>", b"\xff\x00", b'{"a": 1}']
        envelope = found["events"][2]["envelope"]
        assert (envelope["key"], envelope["event_time_us"], envelope["headers"][0]["name"]) == ("me", 5, "h")
        assert [event["offset"] for event in found["events"]] == [0, 33, 43]
        rest = await page.get(f"{one}/events", **{"from": found["next"]})
        assert (len(rest["events"]), rest["at_end"]) == (2, True)
        assert rest["events"][0]["payload"] == {
            "base64": base64.b64encode(b"x" * 8192).decode(), "bytes": 20_000, "cut": True,
        }  # fmt: skip
        only = await page.get(f"{one}/events", filter="SCRIPT")
        assert (len(only["events"]), only["scanned"]) == (1, 5)
        await page.get(f"{one}/events", 400, **{"from": "nonsense"})

    run(test)


def test_a_tail_shows_what_comes_and_ends_with_the_stream(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/tail")
        calls = _calls(page).events
        name = StreamName("s", "tail")
        start = await page.client.cut(name, "tail")
        async with aclosing(calls.events(name, start, b"", skips=True)) as events:
            waiting = asyncio.ensure_future(anext(events))
            await page.send("POST", "/streams/s/tail/events", {"text": "first"})
            kind, document, cut = await waiting
            assert (kind, document["scanned"]) == ("events", 1)
            await page.send("POST", "/streams/s/tail/events", {"text": "second"})
            await page.client.seal_stream(name)
            rest = [event async for event in events]
        assert [kind for kind, *_ in rest] == ["events", "end"]
        # A browser that comes again with the last id misses nothing and sees nothing twice.
        again = await page.client.cut(name, cut)
        shown = [event async for event in calls.events(name, again, b"", skips=False)]
        assert [base64.b64decode(e["payload"]["base64"]) for e in shown[0][1]["events"]] == [b"second"]

    run(test)


def test_a_tail_that_is_slower_than_the_stream_skips_to_its_end(run, monkeypatch) -> None:
    monkeypatch.setattr("sarit.admin.console.tail.CONSOLE_TAIL_EVENTS", 2)
    monkeypatch.setattr("sarit.admin.console.tail.CONSOLE_TAIL_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("sarit.admin.console.tail.CONSOLE_TAIL_BEHIND_SECONDS", 0.02)

    async def test(page) -> None:
        await page.client.create_stream("s/fast")
        async with page.client.writer("s/fast") as writer:
            for n in range(500):
                writer.write(b"%d" % n)
            await writer.flush()
        name = StreamName("s", "fast")
        start = await page.client.cut(name, "head")
        seen = 0
        async with aclosing(_calls(page).events.events(name, start, b"", skips=True)) as events:
            async for kind, document, _ in events:
                if kind == "skipped":
                    break
                seen += document["scanned"]
        end = (await page.client.cut(name, "tail")).positions
        assert 0 < seen < 500
        assert document["bytes"] == sum(end.values()) - sum(len(b"%d" % n) + 8 for n in range(seen))

    run(test)


def test_a_heat_map_shows_rates_and_a_split(run, monkeypatch) -> None:
    monkeypatch.setattr("sarit.admin.console.samplers.CONSOLE_HEAT_SECONDS", 0.05)

    async def test(page) -> None:
        name = StreamName("s", "heat")
        await page.client.create_stream(name)
        sampler = Sampler(page.client, page.node.env.clock, name)
        async with page.client.writer(name) as writer, aclosing(sampler.columns()) as columns:
            assert (await anext(columns))[0] == "columns"
            writer.write(b"x" * 992)
            await writer.flush()
            written = 0.0
            while written < 999:
                _, found, _ = await anext(columns)
                written += sum(cell[3] for cell in found["cells"]) * (found["end"] - found["start"]) / 1000
            assert written == pytest.approx(1000, abs=20)
            await page.client.stream(name).scale(2)
            while not found["changes"]:
                _, found, _ = await anext(columns)
        assert found["changes"] == [
            {"kind": "split", "before": ("0.0",), "after": ("1.1", "2.1"), "low": 0.0, "high": 1.0}
        ]
        sampler.task.cancel()
        await asyncio.gather(sampler.task, return_exceptions=True)

    run(test)


def test_a_heat_map_begins_with_what_the_controller_recorded(run) -> None:
    async def test(page) -> None:
        name = StreamName("s", "recorded")
        await page.client.create_stream(name)
        async with page.client.writer(name) as writer:
            await page.node.controller.timeline.record(name)
            writer.write(b"x" * 92)
            await writer.flush()
            await page.client.stream(name).scale(2)
            await asyncio.sleep(0.01)  # another millisecond: records are kept by time
            await page.node.controller.timeline.record(name)
        sampler = Sampler(page.client, page.node.env.clock, name)
        async with aclosing(sampler.columns()) as columns:
            _, found, _ = await anext(columns)
        sampler.task.cancel()
        await asyncio.gather(sampler.task, return_exceptions=True)
        first = found["columns"][0]
        assert [cell[0] for cell in first["cells"]] == ["0.0", "1.1", "2.1"]
        assert first["cells"][0][3] * (first["end"] - first["start"]) / 1000 == pytest.approx(100, abs=1)
        assert [change["kind"] for change in first["changes"]] == ["split"]

    run(test)


def test_a_heat_map_of_no_stream_says_so(run) -> None:
    async def test(page) -> None:
        sampler = Sampler(page.client, page.node.env.clock, StreamName("s", "none"))
        events = [event async for event in sampler.columns()]
        assert [kind for kind, *_ in events] == ["columns", "failed"]
        assert "does not exist" in events[1][1]["error"]

    run(test)


def test_groups_are_shown_with_lag_and_owners(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/read")
        group = await page.client.reader_groups.create("s/readers", "s/read")
        reader = await group.reader("one")
        for text in ("12345678", "abcdefgh"):
            await page.send("POST", "/streams/s/read/events", {"text": text})
        await reader.read()  # it takes its segments when it reads
        found = await page.get("/groups/s/readers")
        assert [one["reader"] for one in found["readers"]] == ["one"]
        (segment,) = found["segments"]
        assert (segment["reader"], segment["state"], segment["end"]) == ("one", "assigned", 32)
        assert found["unread_bytes"] == 32 - segment["position"]  # what it has read is reported now and then
        (row,) = (await page.get("/groups", scope="s"))["rows"]
        assert (row["group"], row["readers"], row["streams"]) == ("s/readers", 1, ["s/read"])
        await reader.close()
        await page.get("/groups/s/none", 404)

    run(test)


def test_entries_of_tables_come_in_pages(run) -> None:
    async def test(page) -> None:
        await page.client.tables.create("s/table", primary_key_bytes=3, secondary_key_bytes=1, partitions=3)
        table = page.client.table("s/table")
        keys = [(f"{n:03d}", side) for n in range(40) for side in "ab"]
        await table.put_many([(key, b"<b>%s" % key[0].encode()) for key in keys])
        seen, after = [], ""
        while True:
            found = await page.get("/tables/s/table", limit=7, after=after)
            seen += [base64.b64decode(r["primary"]["base64"] + "") + base64.b64decode(r["secondary"]["base64"])
                     for r in found["rows"]]  # fmt: skip
            after = found["next"]
            if not after:
                break
        assert seen == [f"{a}{b}".encode() for a, b in keys]
        assert len((await page.get("/tables/s/table", prefix="01"))["rows"]) == 20
        assert len((await page.get("/tables/s/table", key="011"))["rows"]) == 2
        await page.get("/tables/s/table", 400, prefix="0123")
        await table.put((b"\xff\x00\x01", "a"), b"bytes")
        for name, part in (("prefix", b"\xff"), ("prefix", b"\xff\x00\x01"), ("key", b"\xff\x00\x01")):
            asked = {name: "base64:" + base64.b64encode(part).decode()}
            (row,) = (await page.get("/tables/s/table", **asked))["rows"]
            assert base64.b64decode(row["primary"]["base64"]) == b"\xff\x00\x01"
        for text in ("base64:!", "base64:AA", "base64:AAAAAAAA", "x" * 4000):
            await page.get("/tables/s/table", 400, prefix=text)
            await page.get("/tables/s/table", 400, key=text)
        await page.get("/tables/s/table", 400, after="%")
        (row,) = (await page.get("/tables", scope="s"))["rows"]
        assert (row["table"], row["partitions"]) == ("s/table", 3)

    run(test)


def test_open_transactions_are_shown_until_they_end(run) -> None:
    async def test(page) -> None:
        await page.client.create_stream("s/txn")
        async with page.client.transactional_writer("s/txn") as writer:
            first, second = await writer.begin(), await writer.begin()
            await second.abort()
            found = await page.get("/streams/s/txn/transactions")
            assert [(one["id"], one["state"]) for one in found["open"]] == [(str(first.id), "open")]
            assert found["ended"][0] == {"id": str(second.id), "state": "aborted"}
            await first.abort()

    run(test)


def test_the_overview_has_containers_limits_and_health(run) -> None:
    async def test(page) -> None:
        found = await page.get("/overview")
        assert (found["health"], found["reasons"], found["kind"]) == ("ok", [], "node")
        assert [c["state"] for c in found["containers"]] == ["serving"] * 4
        assert 0 < found["memory"]["soft_limit_bytes"] < found["memory"]["append_limit_bytes"]
        page.node.store.health()[2].fail("its index is damaged")
        try:
            broken = await page.get("/overview")
        finally:
            page.node.store.health()[2].serve()
        assert (broken["health"], broken["reasons"]) == ("failed", ["container 2: damaged, its index is damaged"])

    run(test)


def test_the_page_allows_nothing_of_another_origin(run) -> None:
    async def test(page) -> None:
        for path in ("/", "/console/assets/app.css", "/console/assets/js/main.js", f"{API}/overview", f"{API}/none"):
            reply = await page.http.get(path)
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in reply.headers
        assert (await page.http.get(f"{API}/overview")).headers["cache-control"] == "no-store"
        first = await page.http.get("/console/assets/app.css")
        again = await page.http.get("/console/assets/app.css", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for path in ("/console/assets/none.js", "/console/assets/../routes.py", "/console/assets/%2e%2e/routes.py"):
            assert (await page.http.get(path)).status_code == 404

    run(test)


def test_files_of_the_page_name_nothing_of_another_machine_and_no_script_inline() -> None:
    files = load()
    assert {"index.html", "app.css", "js/main.js", "js/views/heat.js"} <= files.keys()
    for name, content in files.items():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
    page = files["index.html"].decode()
    assert not re.search(r"<style|\son\w+=|\sstyle=|<script>|<script(?![^>]*\ssrc=)", page)
    wanted = set(re.findall(r"/console/assets/([\w./-]+)", page))
    for name, content in files.items():
        folder = name.rpartition("/")[0].split("/")
        for found in re.findall(r'from "(\.[\w./-]+)"', content.decode()):
            parts = list(folder)
            for part in found.split("/"):
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            wanted.add("/".join(parts))
    assert wanted <= files.keys(), "the page names files that are not there"


def test_the_page_names_each_module_so_that_all_are_fetched_at_once() -> None:
    files = load()
    named = set(re.findall(r"/console/assets/(js/[\w./-]+)", files["index.html"].decode()))
    assert named == {name for name in files if name.endswith(".js")}


def _calls(page):
    """Those of everybody: nobody logs in."""
    return next(iter(page.console._calls.values()))
