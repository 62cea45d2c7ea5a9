"""The REST API beside the official Python client: what one of them does, the other one sees."""

from __future__ import annotations

import ssl

import httpx
import pravega_client as pravega
import pytest

from tests import secured
from tests.nodes import RunningNode
from tests.secured import official_manager


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """An official manager and an HTTP client of one node."""
    scheme, login = "http", {}
    if secured.ON:
        scheme = "https"
        trusted = ssl.create_default_context(cafile=secured.files()["ca"])
        login = {"auth": (secured.USER, secured.PASSWORD), "verify": trusted}
    with (
        RunningNode(tmp_path_factory.mktemp("rest") / "data", "--http-port", "0") as node,
        httpx.Client(base_url=f"{scheme}://{node.http}/v1", timeout=60, **login) as rest,
    ):
        yield official_manager(node.controller), rest


def test_official_client_sees_and_uses_what_rest_created(both) -> None:
    manager, rest = both
    assert rest.post("/scopes", json={"scopeName": "by-rest"}).status_code == 201
    fixed = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 3}
    body = {"streamName": "t", "scalingPolicy": fixed, "streamTags": ["a", "b"]}
    assert rest.post("/scopes/by-rest/streams", json=body).status_code == 201
    assert "by-rest" in manager.list_scope()
    assert "t" in manager.list_stream("by-rest")
    assert manager.get_stream_tags("by-rest", "t") == ["a", "b"]
    writer = manager.create_writer("by-rest", "t")
    writer.write_event("hello", routing_key="k")
    writer.flush()
    assert rest.put("/scopes/by-rest/streams/t", json={"scalingPolicy": fixed, "streamTags": ["c"]}).status_code == 200
    assert manager.get_stream_tags("by-rest", "t") == ["c"]
    assert rest.put("/scopes/by-rest/streams/t/state", json={"streamState": "SEALED"}).status_code == 200
    assert manager.delete_stream("by-rest", "t")
    assert rest.get("/scopes/by-rest/streams/t").status_code == 404
    assert manager.delete_scope("by-rest")
    assert rest.get("/scopes/by-rest").status_code == 404


def test_rest_shows_and_deletes_what_the_official_client_created(both) -> None:
    manager, rest = both
    assert manager.create_scope("official")
    rate = pravega.StreamScalingPolicy.auto_scaling_policy_by_event_rate(1000, 2, 4)
    by_size = pravega.StreamRetentionPolicy.by_size(7 << 20)
    assert manager.create_stream_with_policy("official", "t", rate, by_size, ["x"])
    shown = rest.get("/scopes/official/streams/t").json()
    assert shown["scalingPolicy"] == {
        "type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 1000, "scaleFactor": 2, "minSegments": 4,
    }  # fmt: skip
    assert shown["retentionPolicy"] == {"type": "LIMITED_SIZE_MB", "value": 7}
    assert shown["tags"] == ["x"]
    tagged = rest.get("/scopes/official/streams", params={"filter_type": "tag", "filter_value": "x"}).json()
    assert [found["streamName"] for found in tagged["streams"]] == ["t"]
    assert rest.delete("/scopes/official/streams/t").status_code == 412
    assert manager.seal_stream("official", "t")
    assert rest.delete("/scopes/official/streams/t").status_code == 204
    assert "t" not in manager.list_stream("official")
    assert rest.delete("/scopes/official").status_code == 204
    assert "official" not in manager.list_scope()
