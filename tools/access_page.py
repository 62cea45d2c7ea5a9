"""Write the tables of who may do what in docs/operations/security.md: every call and command is tried, and noted.

python -m tools.access_page            write them
python -m tools.access_page --check    exit 1 when the page is stale
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from sarit.controller.access import NEEDS, Access
from sarit.core.errors import Forbidden, Invalid
from sarit.env.real import real_env
from sarit.rpc.methods import PRAVEGA, SARIT
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.search_methods import SEARCH
from sarit.security.audit import NoAudit
from sarit.security.login import Logins
from sarit.security.permissions import Caller, Permission, Rule, Rules
from sarit.security.tokens import TokenKeys
from sarit.store.server.access import CONTROLLERS_ONLY, TokenChecks
from sarit.store.server.access import NEEDS as REQUESTS

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "operations" / "security.md"
BEGIN: Final = "## Every call and every command\n"
_KEYS: Final = TokenKeys([b"k" * 64])
_RULES: Final = Rules(
    [
        Rule("user:other", "prn::/scope:other*", Permission.READ_UPDATE),
        Rule("user:reader", "prn::/scope:app*", Permission.READ),
        Rule("user:writer", "prn::/scope:app*", Permission.READ_UPDATE),
        Rule("user:reader", "prn::/mirror:app", Permission.READ),
        Rule("user:writer", "prn::/mirror:app", Permission.READ_UPDATE),
    ]
)
# The columns, and who they are.
USERS: Final = {
    "no rule": Caller("nobody"),
    "another tenant": Caller("other"),
    "READ": Caller("reader"),
    "READ_UPDATE": Caller("writer"),
    "admin": Caller("root", frozenset({"admin"})),
}
# What a call or command is about, by the name in it.
_THINGS: Final = {
    "stream": ("app", "s"), "group": ("app", "_RGs"), "marks": ("app", "_MARKs"), "table": ("app", "s_kvtable"),
    "system": ("_system", "_tables"), "no name": ("app", "a/*"),
}  # fmt: skip
_SEGMENTS: Final = {
    "stream": ("s", "app/s/0.#epoch.0"),
    "transaction": ("s", f"app/s/0.#epoch.0#transaction.{'a' * 32}"),
    "transient": ("s", f"app/s/0.#epoch.0#transient.{'a' * 32}.{'b' * 32}"),
    "group": ("_RGs", "app/_RGs/0.#epoch.0"),
    "marks": ("_MARKs", "app/_MARKs/0.#epoch.0"),
    "table": ("s_kvtable", "app/s_kvtable/0.#epoch.0"),
    "system": ("s", "_system/_tables/access"),
    "no name": ("s", "app/s/*"),
}

_TEXT_OF_CALLS: Final = """\
`make generate` writes these tables: each call and command is tried as each user, with rules for all of one scope.

Calls of the controller. A cell is the least permission that is needed, on the resources above, where the name in the
call is that of a stream, group or table; the stream of a group (`_RGG`); the stream of marks (`_MARKT`); a table as a
stream (`K_kvtable`); in the scope of the system; or has characters that no name has. `-` is refused to everybody. Who
has not logged in may make the calls for everybody alone, and another tenant no more than who has no rule. Lists show
what one may read. With READ one deletes the groups that one has created, and releases for the groups that one may read.
The calls `mirror…` are about `prn::/mirror:SCOPE`: other installations make them for links.
"""
_TEXT_OF_COMMANDS: Final = """\
Commands of the wire, with the token that the controller gives for the name, by the segment that they are about. What is
`-` in all columns is for the processes of the installation. Where there are no users, a change that is `-` here is
refused as well, and so is all of the system; everything else is open to everybody who reaches the port.
"""


def _fill(message: Any, scope: str, name: str) -> Any:
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            _fill(getattr(message, field.name), scope, name).SetInParent()
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, scope if field.name == "scope" else name)
    return message


async def _allowed(access: Access, method: Any, user: Caller, thing: tuple[str, str]) -> Any:
    """The reply to a call, or None where it is refused."""

    async def serve(_: Any) -> Any:
        return GetMessageClass(method.output_type)()

    request = _fill(GetMessageClass(method.input_type)(), *thing)
    try:
        return await access.carry_out(method.name, serve, request, user, "")
    except (Forbidden, Invalid):
        return None


def _least(allowed: list[bool]) -> str:
    """The least that is needed, of USERS in their order."""
    if not any(allowed):
        return "-"
    return ("who logs in", "another tenant", "READ", "READ_UPDATE", "admin")[allowed.index(True)]


def _rows(cells: dict[str, tuple[str, ...]]) -> list[str]:
    """Rows of a table, one for all names with the same cells."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, row in cells.items():
        groups.setdefault(row, []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {' | '.join(row)} |" for row, names in groups.items()]


def _head(first: str, columns: list[str]) -> list[str]:
    return [f"| {first} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]


async def _calls(access: Access) -> list[str]:
    cells = {}
    for service in (PRAVEGA.service, SARIT.service, MIRROR.service, SEARCH.service):
        for method in service.methods:
            cells[method.name] = tuple(
                [
                    "everybody"
                    if NEEDS[method.name].anonymous
                    else _least([await _allowed(access, method, user, thing) is not None for user in USERS.values()])
                    for thing in _THINGS.values()
                ]
            )
    return _head("call", list(_THINGS)) + _rows(cells)


def _command(kind: type[Any], segment: str, token: str) -> Any:
    """A command of this kind about a segment."""
    given = {"token": token, "source": f"{segment}#transient.{'a' * 32}.{'b' * 32}", "sources": (), "request_id": 1}
    given |= dict.fromkeys(("segment", "parent_segment", "target"), segment)
    return kind(**{field.name: given.get(field.name, 0) for field in fields(kind)})


async def _commands(access: Access) -> list[str]:
    method = PRAVEGA.service.methods_by_name["getDelegationToken"]
    cells = {}
    for kind in (*REQUESTS, *CONTROLLERS_ONLY):
        row = []
        for asked, segment in _SEGMENTS.values():
            allowed = []
            for user in USERS.values():
                reply = await _allowed(access, method, user, ("app", asked))
                checks = TokenChecks(lambda: _KEYS, real_env().clock, NoAudit(), "")
                token = "" if reply is None else reply.delegationToken
                allowed.append(checks.refusal(_command(kind, segment, token)) is None)
            row.append(_least(allowed))
        cells[kind.__name__] = tuple(row)
    return _head("command", list(_SEGMENTS)) + _rows(cells)


async def tables() -> str:
    """The end of the page."""
    env = real_env()
    access = Access(env, Logins(env, {}), lambda: _KEYS, 600)
    access.use(_RULES)
    try:
        calls, commands = await _calls(access), await _commands(access)
    finally:
        await access.close()
    return "\n".join([BEGIN, _TEXT_OF_CALLS, *calls, "", _TEXT_OF_COMMANDS, *commands, ""])


def page() -> str:
    """The whole page as it should be."""
    head, found, _ = PAGE.read_text().partition(BEGIN)
    assert found, f"{PAGE} has no line {BEGIN!r}"
    return head + asyncio.run(tables())


def main() -> None:
    """Write the page, or check it."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != wanted:
            sys.exit("docs/operations/security.md is stale: run make generate")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
