"""Every call and every request has an entry in the tables of access."""

from __future__ import annotations

from sarit.controller.access import NEEDS as CALLS
from sarit.rpc.methods import PRAVEGA, SARIT
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.search_methods import SEARCH
from sarit.security.permissions import Permission
from sarit.store.server.access import CONTROLLERS_ONLY
from sarit.store.server.access import NEEDS as REQUESTS
from sarit.wire import commands as wire
from sarit.wire.commands.registry import Command
from tools import access_page

# Sent by servers of Pravega to each other, and not served here.
NOT_SERVED = {"FlushToStorage", "ListStorageChunks", "CheckChunkExistence", "GetTableSegmentInfoInternal"}


def test_every_call_of_the_controller_has_an_entry():
    services = PRAVEGA.service, SARIT.service, MIRROR.service, SEARCH.service
    names = {method.name for service in services for method in service.methods}
    assert names == set(CALLS)
    assert [name for name, need in CALLS.items() if need.anonymous] == ["getControllerServerList"]


def test_every_request_with_a_token_has_an_entry():
    with_token = {
        kind
        for kind in vars(wire).values()
        if isinstance(kind, type) and issubclass(kind, Command) and "token" in getattr(kind, "__annotations__", {})
    }
    assert with_token
    assert {kind.__name__ for kind in with_token - set(REQUESTS) - set(CONTROLLERS_ONLY)} <= NOT_SERVED
    assert set(REQUESTS) | set(CONTROLLERS_ONLY) <= with_token


def test_what_changes_something_needs_more_than_reading():
    reading = {kind.__name__ for kind, need in REQUESTS.items() if need.permission is Permission.READ}
    assert all(name.startswith(("Read", "Get", "Locate")) for name in reading), reading


def test_page_has_what_each_call_and_command_needs_now():
    assert access_page.PAGE.read_text() == access_page.page(), "run make generate"
