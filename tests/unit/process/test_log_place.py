"""Where the durable log is, by `--log`."""

from __future__ import annotations

import json

import pytest

from sarit.core.errors import Invalid
from sarit.env.real import real_env
from sarit.log.bookkeeper.port import LedgerSettings
from sarit.process.ownership.claims import claim_directory
from sarit.process.ownership.directory_content import LAST_START, OWNER_CHUNK_WRITTEN
from sarit.process.places.bookkeeper_logs import parse_log_url
from sarit.process.settings import NodeConfig

URL = "bookkeeper://zk1:2181,zk2/ledgers"


def test_place_has_servers_path_and_quorums():
    place = parse_log_url(URL + "?e=5&w=3&a=2")
    assert (place.hosts, place.root, place.settings) == ("zk1:2181,zk2", "/ledgers", LedgerSettings(5, 3, 2))
    assert parse_log_url("bookkeeper://zk1").root == "/ledgers"
    assert parse_log_url("bookkeeper://zk1/a/b/").name == "bookkeeper:/a/b"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///log", "write it as bookkeeper://zk1"),
        ("bookkeeper:///ledgers", "write it as bookkeeper://zk1"),
        ("bookkeeper://zk1:x/ledgers", "'zk1:x' is no server of ZooKeeper"),
        ("bookkeeper://zk1,:2181", "is no server of ZooKeeper"),
        ("bookkeeper://zk1//ledgers", "is no path in ZooKeeper"),
        ("bookkeeper://zk1/ledgers?e=three", "e=three is unknown"),
        ("bookkeeper://zk1/ledgers?q=3", "known are e, w and a"),
        ("bookkeeper://zk1/ledgers?w=4", "needed is 1 <= a <= w <= e"),
        ("bookkeeper://zk1/ledgers?e=4&w=4&a=2", "two owners could both be acknowledged"),
    ],
)
def test_wrong_place_is_refused_with_the_reason(url, reason):
    with pytest.raises(Invalid, match=reason.replace("?", r"\?")):
        NodeConfig("data", log_url=url).validated()


def test_loss_cannot_be_accepted():
    with pytest.raises(Invalid, match="cannot be given with --log"):
        NodeConfig("data", log_url=URL, accept_data_loss=True).validated()


def claim(path, log_url):
    claimed = claim_directory(NodeConfig(str(path), log_url=log_url), real_env())
    claimed.lock.close()
    return claimed


def test_directory_remembers_where_its_log_is(tmp_path):
    claim(tmp_path / "a", URL)
    assert json.loads((tmp_path / "a" / "meta").read_text())["log"] == "bookkeeper:/ledgers"
    (tmp_path / "a" / OWNER_CHUNK_WRITTEN).touch()
    claim(tmp_path / "a", "bookkeeper://other:2181/ledgers?e=5")  # its servers and quorums may change
    with pytest.raises(Invalid, match="was made with --log bookkeeper:/ledgers"):
        claim(tmp_path / "a", None)
    claim(tmp_path / "b", None)
    assert "log" not in json.loads((tmp_path / "b" / "meta").read_text())
    (tmp_path / "b" / OWNER_CHUNK_WRITTEN).touch()
    with pytest.raises(Invalid, match="start it without --log again"):
        claim(tmp_path / "b", URL)


def test_complete_directory_needs_no_log_files(tmp_path):
    config = NodeConfig(str(tmp_path), log_url=URL, containers=1)
    claimed = claim_directory(config, real_env())
    claimed.mark_complete(config, real_env())
    claimed.lock.close()
    for name in ("index/container-0.db", LAST_START):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "chunks").mkdir()
    again = claim_directory(config, real_env())
    assert again.complete
    again.lock.close()
