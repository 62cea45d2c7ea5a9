"""Requests to object storage in `sarit cluster status` and in metrics, beside what an S3 server was asked."""

from __future__ import annotations

import signal

import pytest

import sarit
from benchmarks.object_store import PAID_AS_GET, PAID_AS_PUT
from sarit.cli.cluster import NOT_SERVED
from sarit.cluster.limits import DAY_SECONDS, S3_GET_DOLLARS, S3_PUT_DOLLARS
from tests.cluster.processes import RunningCluster
from tests.contract.s3 import s3_server
from tests.contract.s3_proxy import counting
from tests.test_metrics import scrape

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PUTS, GETS = ("puts of chunks", "puts of index"), ("gets of chunks", "gets of index")
CHUNKS, INDEX = "sarit_storage_request_seconds_count", "sarit_index_requests_total"
# The kinds of each, by the columns of the status.
KINDS = {
    "puts of chunks": (CHUNKS, ("write", "list")), "puts of index": (INDEX, ("put", "list")),
    "gets of chunks": (CHUNKS, ("read",)), "gets of index": (INDEX, ("get", "head")),
}  # fmt: skip


def test_status_shows_the_requests_that_stores_make(tmp_path):
    with (
        s3_server(tmp_path / "s3") as behind,
        counting(behind) as (proxy, server),
        RunningCluster(tmp_path / "cluster", 2, 1, 4, bookies=3, s3=server, http=True) as cluster,
    ):
        assert [row["store"] for row in cluster.status()["requests"]] == ["s1", "s2", "all"]  # before any report
        asked, counted = _asked(proxy), _counted(cluster)
        _write(cluster)
        # Each checkpoint of an index has two PUTs, and the first report comes after half a minute.
        rows = cluster.until(lambda status: (status["requests"][-1]["puts of index"] or 0) > 20)["requests"]
        _check_sums(rows)
        # Those of the seconds in between, and what is repeated after an error, are the difference.
        for name, methods in ((PUTS, PAID_AS_PUT), (GETS, PAID_AS_GET)):
            seen = sum(_counted(cluster)[column] - counted[column] for column in name)
            assert seen == pytest.approx(_asked(proxy)[methods] - asked[methods], rel=0.1, abs=8)
            assert 0 < sum(rows[-1][column] for column in name) <= sum(_counted(cluster)[column] for column in name)
        # Of a store that stands still there may be no report.  The command shows the rest.
        for store in cluster.stores.values():
            store.signal(signal.SIGSTOP)
        assert cluster.status()["requests"][-1]["store"] == "all"
        assert "DOLLARS A DAY" in cluster.sarit("cluster", "status", codes=(0, NOT_SERVED))


def _write(cluster):
    with sarit.connect(cluster.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=8)
        for _ in range(3):
            with client.writer("s/t") as writer:
                for number in range(500):
                    writer.write(b"x" * 20_000, key=str(number))


def _asked(proxy) -> dict[tuple[str, ...], int]:
    """What the server was asked, by what it is paid as."""
    found = proxy.folders.copy()
    return {
        methods: sum(count for (method, _), count in found.items() if method in methods)
        for methods in (PAID_AS_PUT, PAID_AS_GET)
    }


def _counted(cluster) -> dict[str, float]:
    """What both stores have counted since they began."""
    scrapes = [scrape(store.http) for store in cluster.stores.values()]
    return {
        column: sum(found.get((metric, ("kind", kind)), 0) for found in scrapes for kind in kinds)
        for column, (metric, kinds) in KINDS.items()
    }


def _check_sums(rows):
    *stores, everything = rows
    for name in (*PUTS, *GETS):
        assert everything[name] == sum(row[name] or 0 for row in stores)
    for row in stores:
        if row["seconds"] is None:
            continue  # of one that began a little later
        paid = sum(row[name] for name in PUTS) * S3_PUT_DOLLARS + sum(row[name] for name in GETS) * S3_GET_DOLLARS
        assert row["dollars a day"] == pytest.approx(paid * DAY_SECONDS / row["seconds"], rel=0.02, abs=0.01)
