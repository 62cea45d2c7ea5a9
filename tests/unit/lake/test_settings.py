"""Settings of a stream's Iceberg table: what may be chosen, and the document that keeps it."""

import json
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.lake.limits import MAX_ICEBERG_SETTINGS_BYTES
from sarit.lake.settings import IcebergSettings, decode_settings

CHOSEN = IcebergSettings("lake.shop.eu.orders", "json", "tail", 5, 1 << 20, True, True, 0)


@pytest.mark.parametrize("settings", [IcebergSettings("lake.shop.orders"), CHOSEN])
def test_settings_are_decoded_as_they_were_encoded(settings):
    assert decode_settings(settings.encode()) == settings


def test_document_of_an_older_version_has_the_defaults():
    assert decode_settings(b'{"table": "lake.shop.orders"}') == IcebergSettings("lake.shop.orders")


def test_document_has_the_form_that_is_stored():
    """A golden document: jobs of installations have such settings."""
    assert CHOSEN.encode() == (
        b'{"table": "lake.shop.eu.orders", "value": "json", "start": "tail", "interval_seconds": 5, '
        b'"target_bytes": 1048576, "naive_times": true, "numbered_metadata": true, "expire_after_seconds": 0}'
    )


def test_names_of_the_tables_are_parts_of_the_choice():
    assert (CHOSEN.catalog, CHOSEN.identifier) == ("lake", ("shop", "eu", "orders"))
    assert CHOSEN.dead_letters == ("shop", "eu", "orders__dlq")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("orders", "is not CATALOG.NAMESPACE.TABLE"),
        ("lake.orders", "is not CATALOG.NAMESPACE.TABLE"),
        ("lake..orders", "'' in 'lake..orders' cannot be a name"),
        ("lake.shop.", "cannot be a table"),
        ("lake.shop.a b", "cannot be a name"),
        ("lake.shop.../etc", "cannot be a name"),
        ("lake.shop.orders;drop", "cannot be a name"),
        ("lake.shop.örders", "cannot be a name"),
        ("lake.shop.orders__dlq", "is for dead letters"),
        ("lake.shop." + "x" * 125, "at most 123 characters"),
        (".".join("lake" for _ in range(11)), "9 levels of namespaces: at most 8"),
    ],
)
def test_name_that_no_table_can_have_is_refused(table, reason):
    with pytest.raises(Invalid, match=reason):
        IcebergSettings(table).encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": "xml"}, "value of an Iceberg table cannot be 'xml': auto, schema, json, binary"),
        ({"start": "middle"}, "start of an Iceberg table cannot be 'middle': head, tail"),
        ({"interval_seconds": 0}, "choose 1 to 86400 seconds"),
        ({"target_bytes": 1 << 40}, "choose 1048576 to 536870912 bytes"),
        ({"expire_after_seconds": 59}, "seconds, or 0 for ever"),
    ],
)
def test_choice_out_of_bounds_is_refused(change, reason):
    with pytest.raises(Invalid, match=reason):
        replace(CHOSEN, **change).check()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "are not JSON"),
        (b"\xff", "are not JSON"),
        (b"[" * 100_000, "at most 4096"),
        (b"[" * 4000, "are not JSON"),
        (b"[]", "are not a JSON object"),
        (b"{}", "name no table"),
        (b'{"table": 7}', "table of an Iceberg table has to be of type str"),
        (b'{"table": "a.b.c", "interval_seconds": true}', "interval_seconds of an Iceberg table has to be of type int"),
        (b'{"table": "a.b.c", "interval_seconds": 1e9}', "has to be of type int"),
        (b'{"table": "a.b.c", "tabel": ""}', "unknown field 'tabel': there are .*table"),
    ],
)
def test_document_that_is_not_one_of_settings_is_refused(document, reason):
    with pytest.raises(Invalid, match=reason):
        decode_settings(document)


def test_longest_settings_fit_into_their_bound():
    name = "x" * 123
    longest = replace(CHOSEN, table=".".join([name] * 10))
    assert len(longest.encode()) <= MAX_ICEBERG_SETTINGS_BYTES
    assert json.loads(longest.encode())["table"] == longest.table
