"""The webhook of alerts: whom it sends nothing, and what it tries again."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import sarit
from tests.nodes import RunningNode

PATH = Path(__file__).parents[2] / "examples" / "alert_webhook" / "deliver.py"
spec = importlib.util.spec_from_file_location("deliver", PATH)
deliver = importlib.util.module_from_spec(spec)
sys.modules["deliver"] = deliver
spec.loader.exec_module(deliver)

MATCH = json.dumps({"query": "q", "id": "1", "segment": 0, "offset": 5}).encode()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:0001::1", "ff02::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused(address, monkeypatch) -> None:
    assert not deliver.is_public(address)
    both = [(0, 0, 0, "", ("8.8.8.8", 443)), (0, 0, 0, "", (address, 443))]
    monkeypatch.setattr(deliver.socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(deliver.Refused, match="not public"):
        deliver.public_address("hooks.example.com", 443)


def test_an_address_of_the_internet_is_taken(monkeypatch) -> None:
    monkeypatch.setattr(deliver.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("8.8.8.8", 443))])
    assert deliver.public_address("hooks.example.com", 443) == "8.8.8.8"


@pytest.mark.parametrize(
    "url", ["http://hooks.example.com/", "https://other.example.com/", "https://u:p@hooks.example.com/", "https:///x"]
)
def test_urls_that_nobody_allowed_are_refused(url) -> None:
    with pytest.raises(deliver.Refused):
        deliver.checked_url(url, ["hooks.example.com"])


def test_what_passes_is_tried_again_and_what_stays_is_set_aside() -> None:
    answers, pauses = iter([OSError("away"), 503, 429, 204]), []

    def once(_: bytes) -> int:
        found = next(answers)
        if isinstance(found, OSError):
            raise found
        return found

    assert deliver.deliver(MATCH, once, pauses.append) == ""
    assert pauses == [1.0, 2.0, 4.0]
    assert deliver.deliver(MATCH, lambda _: 302, pauses.append) == "the answer was 302"


def test_matches_are_delivered_from_where_it_was(tmp_path) -> None:
    sent: list[bytes] = []

    def once(match: bytes) -> int:
        sent.append(match)
        return 200

    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/alerts")
        for number in range(2):
            with client.writer("s/alerts") as writer:
                writer.write(b"%d" % number)
            assert deliver.run(client, "s/alerts", tmp_path / "position", once, follow=False) == 1
    assert sent == [b"0", b"1"]
