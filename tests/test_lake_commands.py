"""Streams as Iceberg tables at the shell: `sarit stream update --iceberg` and `sarit lake`, on a real node."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import sarit as client_library
from tests.catalogs import write_catalogs
from tests.examples.fast_node import fast_node
from tests.test_cli import sarit

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")


@dataclass(frozen=True)
class Place:
    """A node, and the file of its catalogs."""

    controller: str
    catalogs: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lake")
    catalogs = write_catalogs(directory, 'scopes = ["shop"]\n')
    with fast_node(directory / "data", 20, catalogs) as controller:
        with client_library.connect(controller) as client:
            client.create_scope("shop")
        yield Place(controller, catalogs)


def write(place, stream, *events):
    with client_library.connect(place.controller) as client, client.writer(stream) as writer:
        for event in events:
            writer.write(event)


def said(place, *words, code=0):
    """The JSON that a command prints, or its error."""
    out, err = sarit(place, *words, *(["--format", "json"] if code == 0 else []), code=code)
    return json.loads(out) if code == 0 else err


def rows_of(place, table):
    from sarit.lake.catalogs import open_catalog, read_catalogs

    return open_catalog(read_catalogs(str(place.catalogs)), "lake").load_table(table).scan().to_arrow()


def test_stream_becomes_a_table_shows_its_lag_and_ends(place):
    said(place, "stream", "create", "shop/orders", "--segments", "2")
    write(place, "shop/orders", *(f'{{"id": {number}}}' for number in range(500)), "no json")
    found = said(
        place, "stream", "update", "shop/orders", "--iceberg", "lake.shop.orders", "--iceberg-value", "json",
        "--iceberg-interval", "1",
    )["iceberg"]  # fmt: skip
    assert (found["table"], found["rows"], found["value"]) == ("lake.shop.orders", 0, "json")
    done = said(place, "lake", "wait", "shop/orders")
    assert (done["rows"], done["dead_letters"], done["lag_bytes"], done["problem"]) == (500, 1, 0, None)
    assert sorted(rows_of(place, "shop.orders")["id"].to_pylist()) == list(range(500))
    assert said(place, "stream", "info", "shop/orders")["iceberg"]["rows"] == 500
    assert "table     lake.shop.orders (running)" in sarit(place, "stream", "info", "shop/orders")[0]
    listed = said(place, "lake", "list", "shop")
    assert [(row["stream"], row["rows"]) for row in listed if row["stream"] == "shop/orders"] == [("shop/orders", 500)]
    (letter,) = said(place, "lake", "dead-letters", "lake.shop.orders", "--catalogs", str(place.catalogs))
    assert letter["raw"] == "no json"
    assert "it is not JSON" in letter["error"]

    # Other choices for the same table go on where it is.
    said(place, "stream", "update", "shop/orders", "--iceberg-interval", "2")
    write(place, "shop/orders", '{"id": 500}')
    assert said(place, "lake", "wait", "shop/orders")["interval_seconds"] == 2
    assert sorted(rows_of(place, "shop.orders")["id"].to_pylist()) == list(range(501))
    assert said(place, "stream", "update", "shop/orders", "--no-iceberg")["iceberg"] is None
    assert "is no Iceberg table" in said(place, "stream", "update", "shop/orders", "--no-iceberg", code=1)


def test_new_stream_can_be_a_table_from_the_start(place):
    said(place, "stream", "create", "shop/new", "--iceberg", "lake.shop.new", "--iceberg-interval", "1")
    write(place, "shop/new", "a", "b")
    assert said(place, "lake", "wait", "shop/new")["rows"] == 2
    assert sorted(rows_of(place, "shop.new")["value"].to_pylist()) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["--iceberg", "lak.shop.wrong"], 1, "there is no catalog lak in the node's configuration; there is lake"),
        (["--iceberg", "lake.wrong"], 1, "'lake.wrong' is not CATALOG.NAMESPACE.TABLE"),
        (["--iceberg", "lake.shop.x__dlq"], 1, "is for dead letters"),
        (["--iceberg", "lake.shop.x", "--iceberg-interval", "0"], 1, "interval of an Iceberg table cannot be 0"),
        (["--iceberg", "lake.shop.x", "--no-iceberg"], 2, "--no-iceberg, or options of a table, not both"),
        (["--iceberg-interval", "5"], 2, "need --iceberg CATALOG.NAMESPACE.TABLE: the stream is no table"),
        (["--iceberg-value", "xml"], 2, "xml"),
    ],
)
def test_wrong_table_is_refused_and_nothing_is_made(place, words, code, reason):
    said(place, "stream", "create", "shop/wrong")
    assert reason in said(place, "stream", "update", "shop/wrong", *words, code=code)
    assert said(place, "stream", "info", "shop/wrong")["iceberg"] is None


def test_other_table_of_the_same_stream_is_refused_and_the_first_goes_on(place):
    said(place, "stream", "create", "shop/first", "--iceberg", "lake.shop.first", "--iceberg-interval", "1")
    error = said(place, "stream", "update", "shop/first", "--iceberg", "lake.shop.second", code=1)
    assert "stream shop/first is table lake.shop.first already: end that first" in error
    write(place, "shop/first", "a")
    assert said(place, "lake", "wait", "shop/first")["rows"] == 1


def test_table_of_another_stream_is_refused_and_that_of_an_earlier_one_is_resumed_by_hand(place):
    said(place, "stream", "create", "shop/one", "--iceberg", "lake.shop.one", "--iceberg-interval", "1")
    write(place, "shop/one", "a")
    said(place, "lake", "wait", "shop/one")
    said(place, "stream", "create", "shop/two", "--iceberg", "lake.shop.one", "--iceberg-interval", "1")
    write(place, "shop/two", "b")
    assert "other-stream: table lake.shop.one is of another stream" in said(place, "lake", "wait", "shop/two", code=1)
    found = said(place, "lake", "info", "shop/two")
    assert (found["state"], found["problem"].partition(":")[0]) == ("failing", "other-stream")
    said(place, "stream", "update", "shop/two", "--no-iceberg")

    # A new stream of the same name is another one, too, but may go on in the table if somebody says so.
    said(place, "stream", "delete", "shop/one", "--seal", "--yes")
    said(place, "stream", "create", "shop/one", "--iceberg", "lake.shop.one", "--iceberg-interval", "1")
    write(place, "shop/one", "c")
    assert "other-stream" in said(place, "lake", "wait", "shop/one", code=1)
    assert "give --yes" in said(place, "lake", "resume-from", "shop/one", "head", code=2)
    assert "'x' is not a stream cut" in said(place, "lake", "resume-from", "shop/one", "x", "--yes", code=1)
    said(place, "lake", "resume-from", "shop/one", "head", "--yes")
    assert said(place, "lake", "wait", "shop/one")["problem"] is None
    assert sorted(rows_of(place, "shop.one")["value"].to_pylist()) == [b"a", b"c"]


def test_catalog_of_other_scopes_is_refused(place):
    said(place, "scope", "create", "market")
    said(place, "stream", "create", "market/x")
    error = said(place, "stream", "update", "market/x", "--iceberg", "lake.market.x", code=1)
    assert "catalog lake is not for streams of scope market" in error


def test_snapshots_are_removed_by_hand(place):
    said(place, "stream", "create", "shop/old", "--iceberg", "lake.shop.old", "--iceberg-interval", "1")
    for event in "abc":
        write(place, "shop/old", event)
        said(place, "lake", "wait", "shop/old")
    words = ("lake", "expire", "lake.shop.old", "--catalogs", str(place.catalogs), "--older-than", "0")
    assert said(place, *words)["snapshots"] == 2
    write(place, "shop/old", "d")
    said(place, "lake", "wait", "shop/old")
    assert sorted(rows_of(place, "shop.old")["value"].to_pylist()) == [b"a", b"b", b"c", b"d"]


def test_commands_about_what_is_not_there_say_so(place):
    said(place, "stream", "create", "shop/plain")
    assert "stream shop/plain is no Iceberg table" in said(place, "lake", "info", "shop/plain", code=1)
    assert "does not exist" in said(place, "lake", "info", "shop/none", code=1)
    catalogs = ("--catalogs", str(place.catalogs))
    assert "there is no table lake.shop.none" in said(place, "lake", "expire", "lake.shop.none", *catalogs, code=1)
    assert "there are no dead letters" in said(place, "lake", "dead-letters", "lake.shop.none", *catalogs, code=1)
    assert "cannot be read" in said(place, "lake", "expire", "lake.a.b", "--catalogs", "/nowhere", code=1)


def test_nothing_of_a_catalog_reaches_who_names_it(place):
    secret = str(place.catalogs.parent)
    said(place, "stream", "create", "shop/secret", "--iceberg", "lake.shop.secret")
    everything = json.dumps([said(place, "lake", "info", "shop/secret"), said(place, "stream", "info", "shop/secret")])
    assert secret not in everything
