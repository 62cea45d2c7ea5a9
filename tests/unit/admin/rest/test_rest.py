"""The REST API on a real node: each operation, and what it refuses."""

from __future__ import annotations

import asyncio
import json

import pytest

from sarit.admin.rest import handlers
from sarit.client import aio
from sarit.core.errors import Unavailable
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from tests.unit.admin.rest.served import error_of, on_rest, rest_on

JSON = {"content-type": "application/json"}
BY_EVENTS = {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 100, "scaleFactor": 2, "minSegments": 3}


async def next_ms(clock) -> None:
    """Wait until the clock shows another millisecond."""
    before = clock.wall_ms()
    while clock.wall_ms() <= before:
        await asyncio.sleep(0)


@on_rest
async def test_life_of_a_scope(made, rest) -> None:
    created = await rest.post("/v1/scopes", json={"scopeName": "shop"})
    assert (created.status_code, created.json()) == (201, {"scopeName": "shop"})
    assert error_of(await rest.post("/v1/scopes", json={"scopeName": "shop"}), 409) == "scope shop exists"
    assert (await rest.get("/v1/scopes")).json() == {
        "scopes": [{"scopeName": "s"}, {"scopeName": "shop"}, {"scopeName": "_system"}]
    }
    assert (await rest.get("/v1/scopes/shop")).json() == {"scopeName": "shop"}
    assert (await rest.get("/v1/scopes/_system")).status_code == 200
    await made.client.create_stream("shop/orders")
    assert "holds streams" in error_of(await rest.delete("/v1/scopes/shop"), 412)
    await made.client.delete_stream("shop/orders", seal=True)
    deleted = await rest.delete("/v1/scopes/shop")
    assert (deleted.status_code, deleted.content) == (204, b"")
    for method in ("GET", "DELETE"):
        assert error_of(await rest.request(method, "/v1/scopes/shop"), 404) == "scope shop does not exist"


@on_rest
async def test_life_of_a_stream(made, rest) -> None:
    body = {
        "streamName": "orders",
        "scalingPolicy": BY_EVENTS,
        "retentionPolicy": {"type": "LIMITED_DAYS", "timeBasedRetention": {"days": 1, "hours": 2, "minutes": 3}},
        "streamTags": ["b", "a", "b"],
        "timestampAggregationTimeout": 5,
        "rolloverSizeBytes": 6,
    }
    shown = {
        "scopeName": "s",
        "streamName": "orders",
        "scalingPolicy": BY_EVENTS,
        "retentionPolicy": {
            "type": "LIMITED_DAYS", "value": 0, "timeBasedRetention": {"days": 1, "hours": 2, "minutes": 3},
        },
        "tags": ["b", "a"],
        "timestampAggregationTimeout": 5,
        "rolloverSizeBytes": 6,
    }  # fmt: skip
    created = await rest.post("/v1/scopes/s/streams", json=body)
    assert (created.status_code, created.json()) == (201, shown)
    stored = (await made.client.stream_info("s/orders")).config
    assert stored.scaling == ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 2, 3)
    assert stored.retention == RetentionPolicy(RetentionType.TIME, ((24 + 2) * 60 + 3) * 60_000)
    assert error_of(await rest.post("/v1/scopes/s/streams", json=body), 409) == "stream s/orders exists"
    assert (await rest.get("/v1/scopes/s/streams/orders")).json() == shown
    # The whole configuration is replaced: what is not given is gone.
    fixed = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 4}
    changed = await rest.put("/v1/scopes/s/streams/orders", json={"scalingPolicy": fixed, "streamTags": ["c"]})
    plain = {
        "scopeName": "s", "streamName": "orders", "scalingPolicy": fixed, "tags": ["c"],
        "timestampAggregationTimeout": 0, "rolloverSizeBytes": 0,
    }  # fmt: skip
    assert (changed.status_code, changed.json()) == (200, plain)
    assert (await rest.get("/v1/scopes/s/streams/orders")).json() == plain
    assert "not sealed" in error_of(await rest.delete("/v1/scopes/s/streams/orders"), 412)
    sealed = await rest.put("/v1/scopes/s/streams/orders/state", json={"streamState": "SEALED"})
    assert (sealed.status_code, sealed.json()) == (200, {"streamState": "SEALED"})
    update = {"scalingPolicy": fixed}
    assert "is sealed" in error_of(await rest.put("/v1/scopes/s/streams/orders", json=update), 409)
    assert (await rest.delete("/v1/scopes/s/streams/orders")).status_code == 204
    for method, path, sent in (
        ("GET", "", None), ("DELETE", "", None), ("PUT", "", update), ("PUT", "/state", {"streamState": "SEALED"}),
        ("GET", "/scaling-events?from=0&to=1", None),
    ):  # fmt: skip
        answer = await rest.request(method, f"/v1/scopes/s/streams/orders{path}", json=sent)
        assert "does not exist" in error_of(answer, 404), (method, path)
    assert "scope none" in error_of(await rest.post("/v1/scopes/none/streams", json=body), 404)


@on_rest
async def test_a_stream_without_policies_has_one_segment_and_retains_all(made, rest) -> None:
    assert (await rest.post("/v1/scopes/s/streams", json={"streamName": "t"})).json() == {
        "scopeName": "s", "streamName": "t", "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1},
        "tags": [], "timestampAggregationTimeout": 0, "rolloverSizeBytes": 0,
    }  # fmt: skip
    info = await made.client.stream_info("s/t")
    assert (len(info.segments), info.config.retention) == (1, RetentionPolicy())


@on_rest
async def test_null_is_as_absent_and_a_fixed_number_of_segments_ignores_rates(made, rest) -> None:
    fixed = {"type": "FIXED_NUM_SEGMENTS", "targetRate": 5, "scaleFactor": 2, "minSegments": 2}
    shown = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 2}
    size = {"type": "LIMITED_SIZE_MB", "value": 1, "timeBasedRetention": None, "maxValue": None}
    body = {
        "streamName": "t", "scalingPolicy": fixed, "retentionPolicy": size, "streamTags": None,
        "timestampAggregationTimeout": None, "rolloverSizeBytes": None,
    }  # fmt: skip
    created = await rest.post("/v1/scopes/s/streams", json=body)
    assert (created.status_code, created.json()["scalingPolicy"]) == (201, shown)
    assert created.json()["retentionPolicy"] == {"type": "LIMITED_SIZE_MB", "value": 1}
    changed = await rest.put(
        "/v1/scopes/s/streams/t", json={"scalingPolicy": {**fixed, "targetRate": None}, "retentionPolicy": None}
    )
    assert (changed.status_code, changed.json()["scalingPolicy"]) == (200, shown)
    assert "retentionPolicy" not in changed.json()
    stored = (await made.client.stream_info("s/t")).config
    assert (stored.scaling, stored.retention) == (ScalingPolicy(min_segments=2), RetentionPolicy())


@on_rest
async def test_lists_are_whole_or_in_pages(made, rest) -> None:
    names = ["S", "a", "b", "c"]
    for name in names:
        await made.client.create_stream("s", name, tags=["odd"] if name in "ac" else ["even", "odd"])
    await made.client.reader_groups.create("s/g", ["s/a"])
    await made.client.reader_groups.create("s/h", ["s/a"])

    async def listed(query: str = "", what: str = "streams") -> list[str]:
        answer = (await rest.get(f"/v1/scopes/s/{what}{query}")).json()
        assert "continuationToken" not in answer
        (found,) = answer.values()
        return [each.get("streamName", each.get("readerGroupName")) for each in found]

    async def paged(limit: int, what: str = "streams", query: str = "") -> list[list[str]]:
        out, after = [], ""
        while True:
            answer = (await rest.get(f"/v1/scopes/s/{what}?limit={limit}{after}{query}")).json()
            out.append([next(iter(each[n] for n in each if n in ("streamName", "readerGroupName"))) for each in
                        next(iter(answer.values()))])  # fmt: skip
            if "continuationToken" not in answer:
                return out
            after = f"&continuationToken={answer['continuationToken']}"

    assert await listed() == names
    assert await listed("?filter_type=tag&filter_value=even") == ["S", "b"]
    assert await listed("?filter_type=tag&filter_value=odd") == names
    internal = await listed("?filter_type=showInternalStreams")
    assert {"_RGg", "_RGh"} <= set(internal)
    assert all(name.startswith("_") for name in internal)
    assert await listed(what="readergroups") == ["g", "h"]
    assert await paged(3) == [["S", "a", "b"], ["c"]]
    assert await paged(2) == [["S", "a"], ["b", "c"]]
    assert await paged(1, query="&filter_type=tag&filter_value=even") == [["S"], ["b"]]
    assert await paged(1, "readergroups") == [["g"], ["h"]]
    first = (await rest.get("/v1/scopes?limit=1")).json()
    assert first == {"scopes": [{"scopeName": "s"}], "continuationToken": "s"}
    assert (await rest.get("/v1/scopes?limit=1&continuationToken=s")).json() == {"scopes": [{"scopeName": "_system"}]}
    for path in ("streams", "streams?filter_type=tag&filter_value=x", "readergroups"):
        assert "none does not exist" in error_of(await rest.get(f"/v1/scopes/none/{path}"), 404)


@on_rest
async def test_a_list_that_is_too_long_is_refused_without_a_limit(made, rest) -> None:
    for name in "abc":
        await made.client.create_stream("s", name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(handlers, "MAX_LISTED", 2)
        refused = await rest.get("/v1/scopes/s/streams")
        assert "more than 2 streams: ask for some of them by limit=" in error_of(refused, 400)
        assert len((await rest.get("/v1/scopes/s/streams?limit=2")).json()["streams"]) == 2


@on_rest
async def test_scaling_events_show_epochs_between_two_times(made, rest) -> None:
    await made.client.create_stream("s/t", segments=2)
    await made.client.update_stream("s/t", scaling=ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 1_000_000, 2, 1))
    clock = made.node.env.clock
    stream = made.client.stream("s/t")
    times = []
    for segments in (3, 1):
        await next_ms(clock)
        await stream.scale(segments)
        await next_ms(clock)
        times.append(clock.wall_ms())
    events = (await rest.get("/v1/scopes/s/streams/t/scaling-events?from=0&to=9223372036854775807")).json()
    assert [(len(e["segments"]), e["splits"], e["merges"]) for e in events] == [(2, 0, 0), (3, 2, 1), (1, 0, 1)]
    assert events[0]["segments"] == [
        {"number": 0, "epoch": 0, "start": events[0]["timestamp"], "keyStart": 0.0, "keyEnd": 0.5},
        {"number": 1, "epoch": 0, "start": events[0]["timestamp"], "keyStart": 0.5, "keyEnd": 1.0},
    ]
    late = (await rest.get(f"/v1/scopes/s/streams/t/scaling-events?from={times[0]}&to={times[1]}")).json()
    # The first is the epoch that was in force at the first time.
    assert [event["timestamp"] for event in late] == [event["timestamp"] for event in events[1:]]
    assert (late[0]["splits"], late[1]["merges"]) == (0, 1)
    for query, words in (("from=2&to=1", "later than"), ("from=1", "to is missing"), ("from=-1&to=2", "0 or more"),
                         ("from=a&to=2", "whole number"), ("from=1&to=2&from=1", "twice")):  # fmt: skip
        assert words in error_of(await rest.get(f"/v1/scopes/s/streams/t/scaling-events?{query}"), 400)


@on_rest
async def test_reader_groups_are_shown_and_deleted(made, rest) -> None:
    await made.client.create_stream("s/t")
    group = await made.client.reader_groups.create("s/g", ["s/t"])
    async with await group.reader("r2"), await group.reader("r1"):
        assert (await rest.get("/v1/scopes/s/readergroups/g")).json() == {
            "scopeName": "s", "readerGroupName": "g", "streamList": ["s/t"], "onlineReaderIds": ["r1", "r2"],
        }  # fmt: skip
    assert (await rest.delete("/v1/scopes/s/readergroups/g")).status_code == 204
    for method in ("GET", "DELETE"):
        assert "does not exist" in error_of(await rest.request(method, "/v1/scopes/s/readergroups/g"), 404)
        assert "does not exist" in error_of(await rest.request(method, "/v1/scopes/none/readergroups/g"), 404)


@on_rest
async def test_wrong_requests_are_refused_and_change_nothing(made, rest) -> None:
    await made.client.create_stream("s/t", segments=2, tags=["kept"])
    before = (await rest.get("/v1/scopes/s/streams/t")).json()
    scopes = (await rest.get("/v1/scopes")).json()
    url = "/v1/scopes/s/streams"
    days = {"type": "LIMITED_DAYS"}
    for body, words in (
        (b"", "is empty"),
        (b"{", "line 1 column 2"),
        (b"\xff", "not UTF-8: byte 0"),
        (b"[1]", "give an object"),
        (b"[" * 100_000, "not JSON that anybody needs"),
        (b"9" * 5000, "not JSON that anybody needs"),
        (b'{"streamName": NaN}', "NaN"),
        (b'{"streamName": "x", "streamName": "y"}', "twice: 'streamName'"),
        (b'{"streamName": "\\ud800"}', "half a surrogate"),
        ({}, "streamName is missing"),
        ({"streamName": "x", "colour": 1}, 'no field "colour": its fields are streamName'),
        ({"streamName": 7}, "streamName is 7: give a text"),
        ({"streamName": "a/b"}, "it must match"),
        ({"streamName": "a\n"}, "it must match"),
        ({"streamName": "_x"}, "it must match"),
        ({"streamName": "x" * 251}, "250 or fewer characters"),
        ({"streamName": "x", "scalingPolicy": {}}, "scalingPolicy.type is missing"),
        ({"streamName": "x", "scalingPolicy": {"type": "NONE"}}, "give one of"),
        ({"streamName": "x", "scalingPolicy": {**BY_EVENTS, "minSegments": 0}}, "minSegments is 0: give 1 or more"),
        ({"streamName": "x", "scalingPolicy": {**BY_EVENTS, "minSegments": True}}, "is true: give a whole number"),
        ({"streamName": "x", "scalingPolicy": {**BY_EVENTS, "minSegments": 1.5}}, "is 1.5: give a whole number"),
        ({"streamName": "x", "scalingPolicy": {**BY_EVENTS, "targetRate": 1 << 31}}, "2147483647 or less"),
        ({"streamName": "x", "scalingPolicy": {**BY_EVENTS, "targetRate": 0}}, "needs a target rate"),
        ({"streamName": None}, "streamName is missing"),
        ({"streamName": "x", "colour": None}, 'no field "colour"'),
        ({"streamName": "x", "scalingPolicy": {"type": None}}, "scalingPolicy.type is missing"),
        ({"streamName": "x", "streamTags": [None]}, "streamTags[0] is null: give a text"),
        ({"streamName": "x", "retentionPolicy": days}, "above 0"),
        ({"streamName": "x", "retentionPolicy": {**days, "value": 0, "timeBasedRetention": {}}}, "above 0"),
        ({"streamName": "x", "retentionPolicy": {**days, "value": 2, "timeBasedRetention": {"days": 1}}}, "one of"),
        ({"streamName": "x", "retentionPolicy": {**days, "value": 2, "maxValue": 1}}, "cannot keep at most"),
        ({"streamName": "x", "retentionPolicy": {"type": "LIMITED_SIZE_MB", "value": 1,
                                                 "timeBasedRetention": {"days": 1}}}, "belongs to LIMITED_DAYS"),
        ({"streamName": "x", "streamTags": "a"}, "give a list"),
        ({"streamName": "x", "streamTags": ["a", ""]}, "streamTags[1] is \"\": give 1 or more characters"),
        ({"streamName": "x", "streamTags": ["a\0"]}, "it must match"),
        ({"streamName": "x", "streamTags": ["t"] * 129}, "128 or fewer"),
    ):  # fmt: skip
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        assert words in error_of(await rest.post(url, content=content, headers=JSON), 400), body
    assert "scalingPolicy is missing" in error_of(await rest.put(f"{url}/t", json={"streamTags": []}), 400)
    state = {"streamState": "OPEN"}
    assert "give one of ['SEALED']" in error_of(await rest.put(f"{url}/t/state", json=state), 400)
    for path in ("/v1/scopes/a%20b", "/v1/scopes/s/streams/%C3%A4", f"/v1/scopes/{'x' * 256}", "/v1/scopes/a%0A"):
        error_of(await rest.get(path), 400)
    for path in ("/v1/scopes/_system", "/v1/scopes/s/streams/_MARKt", "/v1/scopes/s/readergroups/_g"):
        error_of(await rest.delete(path), 400)
    for query, words in (("filter_type=x", "give one of"), ("filter_type=tag", "belong together"),
                         ("filter_value=x", "belong together"), ("limit=0", "1 or more"), ("limit=10001", "or less"),
                         ("limit=a", "whole number"), ("limit=1&limit=2", "twice"), ("colour=1", "no parameter"),
                         ("continuationToken=a/b", "match")):  # fmt: skip
        assert words in error_of(await rest.get(f"{url}?{query}"), 400), query
    assert (await rest.get("/v1/scopes")).json() == scopes
    assert [found["streamName"] for found in (await rest.get(url)).json()["streams"]] == ["t"]
    assert (await rest.get(f"{url}/t")).json() == before


@on_rest
async def test_wrong_methods_types_sizes_and_paths_are_refused(made, rest) -> None:
    refused = await rest.patch("/v1/scopes")
    assert error_of(refused, 405) == "PATCH is not possible here, but GET, HEAD, POST"
    assert refused.headers["allow"] == "GET, HEAD, POST"
    for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
        answer = await rest.post("/v1/scopes", content=b'{"scopeName": "x"}', headers={"content-type": kind})
        assert "Content-Type: application/json" in error_of(answer, 415)
    assert (
        await rest.post(
            "/v1/scopes", content=b'{"scopeName": "x"}', headers={"content-type": "Application/JSON; charset=utf-8"}
        )
    ).status_code == 201
    large = b'{"scopeName": "' + b"x" * (1 << 20) + b'"}'
    assert "at most 1048576 bytes" in error_of(await rest.post("/v1/scopes", content=large, headers=JSON), 413)

    async def pieces():
        for at in range(0, len(large), 1 << 16):
            yield large[at : at + (1 << 16)]

    assert "at most 1048576 bytes" in error_of(await rest.post("/v1/scopes", content=pieces(), headers=JSON), 413)
    for path in ("/v1/", "/v1/scopes/", "/v1/scopes/s/streams/", "/v1/scopes/s/x", "/v1/nothing"):
        answer = await rest.get(path)
        assert answer.status_code == 404, path
    assert "/openapi.json shows what there is" in error_of(await rest.get("/v1/nothing"), 404)
    assert "/openapi.json shows what there is" in error_of(await rest.post("/v1/scopes/", json={}), 404)


@on_rest
async def test_a_node_that_is_away_is_answered_503(made, rest) -> None:
    impatient = await aio.connect(made.address, retry_timeout=0)
    try:

        async def away(*_: object) -> None:
            raise Unavailable("the store is away")

        impatient.session.controller.call = away
        async with rest_on(impatient) as other:
            answer = await other.get("/v1/scopes")
            assert "the store is away" in error_of(answer, 503)
            assert answer.headers["retry-after"] == "1"
    finally:
        await impatient.close()


@on_rest
async def test_a_bug_is_answered_500_and_logged(made, rest) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a bug")

    made.client.session.controller.call = broken
    assert "mistake of the node" in error_of(await rest.get("/v1/scopes/s"), 500)


@on_rest
async def test_a_configuration_set_by_another_client_is_put_back_unchanged(made, rest) -> None:
    for number, retention in enumerate((
        RetentionPolicy(RetentionType.SIZE, 5 << 20, 9 << 20),
        RetentionPolicy(RetentionType.TIME, 2 * 86_400_000, 3 * 86_400_000 + 60_000),
        RetentionPolicy(),
    )):  # fmt: skip
        await made.client.create_stream("s", f"t{number}", retention=retention)
        url = f"/v1/scopes/s/streams/t{number}"
        found = (await rest.get(url)).json()
        fields = {"streamTags": found.pop("tags"), **found}
        sent = {name: value for name, value in fields.items() if name not in ("scopeName", "streamName")}
        assert (await rest.put(url, json=sent)).status_code == 200
        assert (await made.client.stream_info(f"s/t{number}")).config.retention == retention
    # The official clients send the largest number where they mean that there is no maximum.
    for number, kind in enumerate((RetentionType.SIZE, RetentionType.TIME)):
        await made.client.create_stream("s", f"most{number}", retention=RetentionPolicy(kind, 60_000, (1 << 63) - 1))
        found = (await rest.get(f"/v1/scopes/s/streams/most{number}")).json()["retentionPolicy"]
        assert not {"maxValue", "maxTimeBasedRetention"} & set(found)
    # Less than one MiB, or one minute, is not shown as nothing.
    await made.client.create_stream("s/small", retention=RetentionPolicy(RetentionType.SIZE, 1))
    assert (await rest.get("/v1/scopes/s/streams/small")).json()["retentionPolicy"]["value"] == 1
    await made.client.create_stream("s/brief", retention=RetentionPolicy(RetentionType.TIME, 1))
    assert (await rest.get("/v1/scopes/s/streams/brief")).json()["retentionPolicy"]["timeBasedRetention"] == {
        "days": 0, "hours": 0, "minutes": 1,
    }  # fmt: skip
