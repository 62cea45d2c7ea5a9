"""Which requests the console refuses before a handler runs."""

import pytest
from starlette.datastructures import Headers

from sarit.admin.console.guard import refusal
from sarit.admin.hosts import is_own_host

NAMES = frozenset({"sarit.example"})
TOKEN = "t" * 43
OWN = {"host": "127.0.0.1:9091", "sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:9091"}


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:9091", True), ("localhost", True), ("LOCALHOST:80", True), ("[::1]:9091", True), ("10.1.2.3", True),
        ("sarit.example:9091", True), ("SARIT.example.", True), ("a.localhost:1", True),
        ("evil.example:9091", False), ("127.0.0.1.evil.example", False), ("", False), ("localhost.evil.example", False),
        ("sarit.example.evil.example", False), ("[", False), ("127.0.0.1@evil.example", False),
    ],
)  # fmt: skip
def test_hosts_of_the_node_are_addresses_localhost_and_its_names(host, own) -> None:
    assert is_own_host(host, NAMES) is own


def refused(method, headers, writes=True):
    found = refusal(method, Headers(headers), NAMES, TOKEN, writes)
    return None if found is None else found[0]


def test_a_read_of_the_own_page_passes() -> None:
    assert refused("GET", OWN) is None
    assert refused("GET", {"host": "127.0.0.1:9091"}) is None  # curl


def test_a_name_that_was_rebound_to_this_machine_is_refused() -> None:
    assert refused("GET", {**OWN, "host": "evil.example:9091"}) == 421


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_read_by_a_script_of_another_site_is_refused(site) -> None:
    assert refused("GET", {**OWN, "sec-fetch-site": site, "sec-fetch-mode": "cors"}) == 403
    # A link of another site to the page is no more than an address that was typed.
    assert refused("GET", {**OWN, "sec-fetch-site": site, "sec-fetch-mode": "navigate"}) is None


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, None),
        ({"x-sarit-token": "wrong"}, 403),
        ({"x-sarit-token": ""}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),  # a form of another site
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9092"}, 403),
        ({"host": "evil.example"}, 421),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT"])
def test_a_change_needs_the_own_page_and_the_token(method, change, status) -> None:
    assert refused(method, {**OWN, "x-sarit-token": TOKEN, **change}) == status


def test_a_read_only_console_refuses_changes_and_shows_everything() -> None:
    headers = {**OWN, "x-sarit-token": TOKEN}
    assert (refused("POST", headers, writes=False), refused("GET", headers, writes=False)) == (403, None)
