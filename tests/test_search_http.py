"""A searchable stream over HTTP on a real node: REST makes and searches its index, and the console shows it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request

import pytest

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

pytest.importorskip("tantivy", reason="sarit[search] is not installed")
FIELDS = [{"path": "at", "kind": "time"}, {"path": "level", "kind": "keyword"}, {"path": "text", "kind": "text"}]
EVENTS = 60


def asked(node, path, method="GET", body=None, **given):
    """The JSON that the node answers."""
    url = f"http://{node.http}{path}?{urllib.parse.urlencode(given)}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
        return json.loads(answer.read() or b"null")


def test_stream_is_made_searchable_and_searched(tmp_path):
    with (
        RunningNode(tmp_path / "data", "--http-port", "0", "--jobs", "on") as node,
        sarit.connect(node.controller) as client,
    ):
        client.create_scope("web")
        client.create_stream("web/log", segments=2)
        with client.writer("web/log") as writer:
            for number in range(EVENTS):
                level = "error" if number % 3 == 0 else "info"
                text = f"disk {number} is <b>full</b>" if number == 6 else f"request {number}"
                at = f"2026-03-01T10:{number:02}:00Z"
                writer.write(json.dumps({"at": at, "level": level, "text": text}), key=str(number))
        stream = "/v1/scopes/web/streams/log"
        settings = {"fields": FIELDS, "timeField": "at", "intervalSeconds": 1}
        assert asked(node, f"{stream}/searchable", "PUT", settings)["settings"]["fields"] == FIELDS
        while asked(node, f"{stream}/searchable")["events"] < EVENTS:
            pass

        found = asked(node, f"{stream}/search", q="level:error", limit=5, bucketMs=3_600_000, facets="level")
        assert (found["total"], len(found["hits"])) == (20, 5)
        assert [hit["time"] for hit in found["hits"]] == sorted((hit["time"] for hit in found["hits"]), reverse=True)
        assert [bucket["events"] for bucket in found["histogram"]] == [20]
        assert found["facets"] == [{"field": "level", "values": [{"value": "error", "events": 20}]}]
        places = {(hit["segment"], hit["offset"]) for hit in found["hits"]}
        while "page" in found:
            found = asked(node, f"{stream}/search", q="level:error", limit=5, page=found["page"])
            places |= {(hit["segment"], hit["offset"]) for hit in found["hits"]}
        assert len(places) == 20

        (hit,) = asked(node, f"{stream}/search", q='"is b full"')["hits"]
        marked = [hit["event"][span["begin"] : span["end"]] for span in hit["highlights"]]
        assert marked == ["is <b>full"]

        page = asked(node, "/console/api/streams/web/log/find", q="error")
        assert (page["total"], page["bucket_ms"], page["facets"]) == (20, 60_000, {"level": [["error", 20]]})
        assert sum(events for _, events in page["buckets"]) == 20
        assert page["marks"]["words"] == ["error"]
        client.create_stream("web/alerts")
        query = f"{stream}/continuous-queries/full"
        wanted = {"query": "disk full", "output": "web/alerts", "withEvent": True}
        assert asked(node, query, "PUT", wanted)["state"] in ("pending", "active")
        while asked(node, query)["state"] != "active":
            pass
        with client.writer("web/log") as writer:
            writer.write('{"text": "the disk is full again"}')
        with client.reader("web/alerts") as alerts:
            match = json.loads(next(iter(alerts)))
        assert (match["stream"], match["query"]) == ("web/log", "full")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            asked(node, query, "PUT", wanted | {"output": "web/log"})
        while (listed := asked(node, f"{stream}/continuous-queries"))["matches"] < 1:
            pass
        assert [each["name"] for each in listed["queries"]] == ["full"]
        with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=HANG_SECONDS) as answer:
            scraped = answer.read().decode().splitlines()
        values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in scraped if line[:1] != "#"}
        assert values['sarit_searches_total{outcome="found"}'] >= 5
        assert values['sarit_continuous_queries{stream="web/log"}'] == 1
        assert values['sarit_continuous_matches_total{stream="web/log"}'] >= 1
        assert asked(node, query, "PUT", wanted | {"query": "disk empty"})["query"] == "disk empty"
        assert asked(node, query, "DELETE") is None

        while asked(node, f"{stream}/searchable")["events"] <= EVENTS:
            pass
        shown = asked(node, "/console/api/streams/web/log")["search"]
        assert (shown["events"], shown["lag_bytes"], shown["problem"]) == (EVENTS + 1, 0, None)
