"""Checks who may make which call of the controller's API, by one table.

`NEEDS` says for each rpc which resource it is about, and which permission it needs.  A call without an entry cannot be
served while access is checked.  What Pravega requires is required here, with two differences, both in favour of those
who only read: a token carries the permission that its caller has, so asking for the segments of a stream needs READ
alone; and a list shows what its caller may read.

*The system's scope.*  Its tables hold the rules themselves.  Nobody, administrators neither, gets a token or makes a
call about it, except to ask whether the scope exists and to list what it contains.

*A name need not exist.*  A token is for a name and for what the rules say of it, and rules may be older than what they
are about.  Rust and Python ask for the token of a table, or of a group of theirs, before they create it, perhaps in a
scope that no controller knows.  So names are checked for their form, and not for being there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.controller.authorized_caller import Authorized, current_authorized, current_login
from sarit.controller.model import groups
from sarit.core.errors import Forbidden, Unauthenticated
from sarit.core.names import MARK_PREFIX, SYSTEM_SCOPE
from sarit.rpc.generated import controller_pb2 as pb
from sarit.security.audit import Audit, NoAudit
from sarit.security.login import OWN_NAME
from sarit.security.permissions import (
    ROOT,
    Caller,
    Permission,
    Rules,
    group_resource,
    mirror_resource,
    needed_to_ask,
    owner_resource,
    scope_resource,
    stream_resource,
    table_resource,
    token_permission,
    token_resources,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sarit.env.ports import Env
    from sarit.security.login import Logins
    from sarit.security.tokens import TokenKeys

READ: Final = Permission.READ
UPDATE: Final = Permission.READ_UPDATE

_SYSTEM: Final = scope_resource(SYSTEM_SCOPE)
_SYSTEM_MIRROR: Final = mirror_resource(SYSTEM_SCOPE)
_Access = pb.StreamInfo.AccessOperation

# The permission that each access operation of a token request asks for.
_ASKED: Final[Mapping[Any, Permission]] = {
    _Access.READ: READ,
    _Access.WRITE: UPDATE,
    _Access.READ_WRITE: UPDATE,
}


@dataclass(frozen=True, slots=True)
class Listed:
    """Where a reply lists things: the field, and how to get the resource and the name of one item.

    `go_on`: turns the request for this page into the one for the next page; None: there is one page."""

    field: str
    resource: Callable[[Any, Any], str]
    name: Callable[[Any], str]
    go_on: Callable[[Any, Any], None] | None


@dataclass(frozen=True, slots=True)
class Need:
    """The permission that a call needs: `permission(request)` on one of `resources(request)`.

    `claims`: the resources that the token in the reply grants, each with the resource whose rules decide; None: the
    reply has no token.  `listed`: the items of the reply, which shows only those that the caller may read; a caller
    with READ_UPDATE sees all if `owner_sees_all`.  `streams`: further streams that the caller must be able to read.
    `group`: READ on this group and on one of `resources` suffices.  `system`: the call may be about the system's scope.
    `of_users`: the stream's name must not begin with "_".  `anonymous`: callers who have not logged in may make it."""

    permission: Callable[[Any], Permission]
    resources: Callable[[Any], Sequence[str]]
    claims: Callable[[Any], Sequence[tuple[str, str]]] | None = None
    listed: Listed | None = None
    owner_sees_all: bool = False
    streams: Callable[[Any], Sequence[tuple[str, str]]] | None = None
    group: Callable[[Any], str] | None = None
    system: bool = False
    of_users: bool = False
    anonymous: bool = False


def _next_page(request: Any, reply: Any) -> None:
    request.continuationToken.CopyFrom(reply.continuationToken)


def _next_configs(request: Any, reply: Any) -> None:
    request.after = reply.streams[-1].streamInfo.stream


def _next_scopes(request: Any, reply: Any) -> None:
    request.after = reply.scopes[-1]


def _none(_: Any) -> Permission:
    return Permission.NONE


def _read(_: Any) -> Permission:
    return READ


def _update(_: Any) -> Permission:
    return UPDATE


def _read_unless_system(request: Any) -> Permission:
    # Sarit's client asks whether the system's scope exists, to find out whether the server is a Sarit controller.
    return Permission.NONE if request.scope == SYSTEM_SCOPE else READ


def _asked(request: Any) -> Permission:
    return needed_to_ask(request.stream, _ASKED.get(request.accessOperation, READ))


def _root(_: Any) -> Sequence[str]:
    return (ROOT,)


def _scope(request: Any) -> Sequence[str]:
    scope = request.scope
    return (scope_resource(scope if isinstance(scope, str) else scope.scope),)


def _name(request: Any) -> tuple[str, str]:
    """Return the scope and the stream of a request: requests have them in different fields."""
    for field in ("streamInfo", "stream"):
        inner = getattr(request, field, None)
        if isinstance(inner, pb.StreamInfo):
            return inner.scope, inner.stream
    for field in ("position", "streamCut"):
        inner = getattr(request, field, None)
        if isinstance(inner, pb.StreamCut):
            return inner.streamInfo.scope, inner.streamInfo.stream
    return request.scope, request.stream


def _stream(request: Any) -> Sequence[str]:
    return (owner_resource(*_name(request)),)


def _stream_claims(request: Any) -> Sequence[tuple[str, str]]:
    scope, name = _name(request)
    return ((stream_resource(scope, name), owner_resource(scope, name)),)


def _any_claims(request: Any) -> Sequence[tuple[str, str]]:
    # Clients ask for the address and the token of a table as if it were a stream.
    return token_resources(*_name(request))


def _any_owner(request: Any) -> Sequence[str]:
    return tuple(dict.fromkeys(owner for _, owner in _any_claims(request)))


def _creation(request: Any) -> Sequence[str]:
    return scope_resource(_name(request)[0]), *_stream(request)


def _group(request: Any) -> Sequence[str]:
    name = getattr(request, "readerGroupName", "") or getattr(request, "readerGroup", "")
    return scope_resource(request.scope), group_resource(request.scope, name)


def _streams_of_group(request: Any) -> Sequence[tuple[str, str]]:
    # Refuse a request with too many streams before its streams are checked one by one.
    groups.check_size(max(len(request.startingStreamCuts), len(request.endingStreamCuts)))
    infos = (cut.streamInfo for cuts in (request.startingStreamCuts, request.endingStreamCuts) for cut in cuts)
    return tuple(dict.fromkeys((info.scope, info.stream) for info in infos))


def _table(request: Any) -> Sequence[str]:
    return (table_resource(request.scope, request.kvtName),)


def _new_table(request: Any) -> Sequence[str]:
    return scope_resource(request.scope), table_resource(request.scope, request.kvtName)


def _table_claims(request: Any) -> Sequence[tuple[str, str]]:
    table = table_resource(request.scope, request.kvtName)
    return ((table, table),)


def _mirror(request: Any) -> Sequence[str]:
    return (mirror_resource(request.scope),)


def _created(request: Any) -> Sequence[str]:
    scope, kind = request.scope, request.WhichOneof("named")
    if kind is None:
        return (scope_resource(scope),)
    if kind == "table":
        return (table_resource(scope, request.table),)
    # A request may name a group by its stream: `owner_resource` finds the group by the stream's name.
    return _group(request) if kind == "readerGroup" else (owner_resource(scope, request.stream),)


def _output(request: Any) -> Sequence[str]:
    return (owner_resource(request.output.scope, request.output.stream),)


def _source(request: Any) -> Sequence[tuple[str, str]]:
    return ((request.scope, request.stream),)


def _of_stream(permission: Callable[[Any], Permission], *, token: bool = False) -> Need:
    return Need(permission, _stream, _stream_claims if token else None)


def _listed_stream(info: pb.StreamInfo) -> str:
    # As in Pravega, a list shows a mark stream only to who may read the mark stream itself: READ on the stream that
    # its watermarks are about is not enough.
    if info.stream.startswith(MARK_PREFIX):
        return stream_resource(info.scope, info.stream)
    return owner_resource(info.scope, info.stream)


_LISTED_STREAMS: Final = Listed("streams", lambda _, item: _listed_stream(item), lambda item: item.stream, _next_page)


def _subscribed_group(_: Any, subscriber: str) -> str:
    scope, _, group = subscriber.partition("/")
    return group_resource(scope, group)


NEEDS: Final[Mapping[str, Need]] = {
    # Clients look for controllers before they log in.
    "getControllerServerList": Need(_none, _root, anonymous=True),
    "getControllerToBucketMapping": Need(_update, _root),
    "createScope": Need(_update, lambda r: (ROOT, scope_resource(r.scope))),
    "deleteScope": Need(_update, lambda r: (ROOT, scope_resource(r.scope))),
    "deleteScopeRecursive": Need(_update, lambda r: (ROOT, scope_resource(r.scope))),
    "checkScopeExists": Need(_read_unless_system, _scope, system=True),
    "listScopes": Need(
        _none, _root, listed=Listed("scopes", lambda _, item: scope_resource(item), lambda item: item, _next_page)
    ),
    "listStreamsInScope": Need(_read, _scope, listed=_LISTED_STREAMS, system=True),
    "listStreamsInScopeForTag": Need(_read, _scope, listed=_LISTED_STREAMS, system=True),
    "createStream": Need(_update, _creation, of_users=True),
    "updateStream": _of_stream(_update),
    "getStreamConfiguration": _of_stream(_read),
    "truncateStream": _of_stream(_update),
    "sealStream": _of_stream(_update),
    "deleteStream": _of_stream(_update),
    "checkStreamExists": _of_stream(_read),
    "getCurrentSegments": _of_stream(_read, token=True),
    "getEpochSegments": _of_stream(_read, token=True),
    "getSegments": _of_stream(_read, token=True),
    "getSegmentsImmediatlyFollowing": _of_stream(_read, token=True),
    "getSegmentsImmediatelyFollowing": _of_stream(_read, token=True),
    "getSegmentsBetween": _of_stream(_read, token=True),
    "scale": _of_stream(_update),
    "checkScale": _of_stream(_read),
    "getURI": Need(_read, _any_owner),
    "isSegmentValid": _of_stream(_read),
    "isStreamCutValid": _of_stream(_read),
    "createTransaction": _of_stream(_update, token=True),
    "pingTransaction": _of_stream(_update),
    "commitTransaction": _of_stream(_update),
    "abortTransaction": _of_stream(_update),
    "checkTransactionState": _of_stream(_read),
    "listCompletedTransactions": _of_stream(_read),
    "getDelegationToken": Need(_asked, _any_owner, _any_claims),
    "noteTimestampFromWriter": _of_stream(_update),
    "removeWriter": _of_stream(_update),
    "createKeyValueTable": Need(_update, _new_table),
    "getCurrentSegmentsKeyValueTable": Need(_read, _table, _table_claims),
    "listKeyValueTablesInScope": Need(
        _read,
        _scope,
        system=True,
        listed=Listed(
            "kvtables", lambda _, item: table_resource(item.scope, item.kvtName), lambda item: item.kvtName, _next_page
        ),
    ),
    "getKeyValueTableConfiguration": Need(_read, _table),
    "deleteKeyValueTable": Need(_update, _table),
    "listSubscribers": Need(
        _read, _stream, listed=Listed("subscribers", _subscribed_group, str, None), owner_sees_all=True
    ),
    # Who may read a group may release for it what it has read; for any group, who may change the stream.
    "updateSubscriberStreamCut": Need(_update, _stream, group=lambda r: _subscribed_group(r, r.subscriber)),
    "createReaderGroup": Need(_read, _group, streams=_streams_of_group),
    "getReaderGroupConfig": Need(_read, _group),
    "updateReaderGroup": Need(_read, _group, streams=_streams_of_group),
    # READ suffices to delete a group that the caller has created (checked in `calls/groups.py`).
    "deleteReaderGroup": Need(_read, _group),
    "dropSubscriber": _of_stream(_update),
    "cutAt": _of_stream(_read),
    "streamConfigs": Need(
        _read,
        _scope,
        system=True,
        listed=Listed(
            "streams",
            lambda _, item: _listed_stream(item.streamInfo),
            lambda item: item.streamInfo.stream,
            _next_configs,
        ),
    ),
    "scalingEvents": _of_stream(_read),
    "listRules": Need(_update, _root),
    "changeRules": Need(_update, _root),
    "listQuotas": Need(_update, _root),
    "changeQuotas": Need(_update, _root),
    "quotaUse": Need(_update, _root),
    "creationId": Need(_read, _created),
    "streamProperties": _of_stream(_read),
    "changeStreamProperties": _of_stream(_update),
    "createJob": _of_stream(_update),
    "listJobs": _of_stream(_read),
    "deleteJob": _of_stream(_update),
    "mirrorSite": Need(_none, _root),
    "mirrorScopes": Need(
        _none, _root, listed=Listed("scopes", lambda _, item: mirror_resource(item), lambda item: item, _next_scopes)
    ),
    "mirrorStreams": Need(_read, _mirror),
    "mirrorFacts": Need(_read, _mirror),
    "mirrorOffers": Need(_read, _mirror),
    "mirrorRead": Need(_read, _mirror),
    "mirrorGrown": Need(_read, _mirror),
    "mirrorHold": Need(_update, _mirror),
    # Sealing streams is no part of copying: who may write mirrors of a scope may not end its streams by that.
    "mirrorFence": Need(_update, _scope),
    "mirrorBegin": Need(_update, _mirror),
    "mirrorStates": Need(_update, _mirror),
    "mirrorWrite": Need(_update, _mirror),
    "mirrorFinish": Need(_update, _mirror),
    "mirrorDrop": Need(_update, _mirror),
    "mirrorRestart": Need(_update, _mirror),
    "mirrorPromote": Need(_update, _mirror),
    # What goes with streams may be about the system's scope: there it is the schema registry, and nothing else.
    "mirrorTables": Need(_read, _mirror, system=True),
    "mirrorTableChanges": Need(_read, _mirror, system=True),
    "mirrorCuts": Need(_read, _mirror),
    "mirrorGroups": Need(_read, _mirror),
    "mirrorBeginTables": Need(_update, _mirror, system=True),
    "mirrorCompareTable": Need(_update, _mirror, system=True),
    "mirrorWriteTable": Need(_update, _mirror, system=True),
    "mirrorCutTimes": Need(_update, _mirror),
    "mirrorAddCuts": Need(_update, _mirror),
    "mirrorPutGroups": Need(_update, _mirror),
    "mirrorPromoteAttached": Need(_update, _mirror, system=True),
    "createLink": Need(_update, _root),
    "listLinks": Need(_update, _root),
    "linkStatus": Need(_update, _root),
    "changeLink": Need(_update, _root),
    "deleteLink": Need(_update, _root),
    "promoteLink": Need(_update, _root),
    # Counts and the values of fields are what events say: they need the same right.
    "search": _of_stream(_read),
    "searchInfo": _of_stream(_read),
    # Controllers make this call of each other, with the log-in of whose search it is.
    "searchShards": _of_stream(_read),
    # A continuous query copies events from one stream to another: its maker needs the rights of both.
    "putContinuous": Need(_update, _output, streams=_source),
    "listContinuous": _of_stream(_read),
    "deleteContinuous": Need(_update, _output, streams=_source),
}


def _plain(user: str) -> str:
    """Return a user's name for a token.  Characters that base64 could turn into its URL-safe ones are replaced: clients
    that decode the token's payload as standard base64 must be able to."""
    return re.sub("[>?~\x7f]", "_", user)


class Access:
    """Checks each call of a controller.

    `keys`: returns the keys that sign tokens now; `seconds`: how long a token is valid."""

    def __init__(
        self, env: Env, logins: Logins, keys: Callable[[], TokenKeys], seconds: int, audit: Audit | None = None
    ) -> None:
        self._env = env
        self._logins = logins
        self._keys = keys
        self._seconds = seconds
        self._audit = audit or NoAudit()
        self.rules = Rules()

    def __repr__(self) -> str:
        return f"<Access, {self.rules!r}>"

    async def close(self) -> None:
        """Stop the thread that verifies passwords."""
        await self._logins.close()

    def user_now(self, name: str, roles: frozenset[str]) -> Caller | None:
        """Return a user who made something that acts for this user; None: there is no such user any more.

        `roles`: those of the user then, which count for who logs in with tokens: of them nothing else is known."""
        return self._logins.user_now(name, roles)

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on."""
        self.rules = rules

    async def caller(self, call: str, authorization: str | None, peer: str) -> Caller | None:
        """Return who makes a call; None where anybody may.  Raises Unauthenticated, Unavailable."""
        if NEEDS[call].anonymous:
            return None
        try:
            found = await self._logins.caller(authorization, peer)
            # The token of the process itself never leaves it.
            current_login.set(None if found.name == OWN_NAME else authorization)
            return found
        except Unauthenticated as error:
            self._audit.note(who="", what=call, resource="", peer=peer, allowed=False, why=str(error))
            raise

    async def carry_out(
        self, call: str, method: Callable[[Any], Awaitable[Any]], request: Any, caller: Caller | None, peer: str
    ) -> Any:
        """Call `method` if the caller may.  Returns the reply, reduced to what the caller may read.  Raises Forbidden,
        Invalid, and what `method` raises."""
        need = NEEDS[call]
        if caller is None:
            return await method(request)
        had = self._authorize(call, need, request, caller, peer)
        current_authorized.set(Authorized(caller.name, had, caller.roles))
        # Sign the token before the call: a name that no token can carry is refused before anything is changed.
        token = "" if need.claims is None else self._token(need.claims(request), request, caller)
        if need.listed is not None and not (need.owner_sees_all and had >= UPDATE):
            return await self._listed(need.listed, method, request, caller)
        reply = await method(request)
        if need.claims is not None:
            reply.delegationToken = token
        return reply

    def _authorize(self, call: str, need: Need, request: Any, caller: Caller, peer: str) -> Permission:
        """Return the permission that the caller has on the resources of a request.  Raises Forbidden."""
        resources = need.resources(request)
        wanted = need.permission(request)
        had = max((self.rules.of(caller, resource) for resource in resources), default=Permission.NONE)
        streams = () if need.streams is None else need.streams(request)
        hidden = next((name for name in streams if self.rules.of(caller, owner_resource(*name)) < READ), None)
        why = _refused_to_all(need, request, resources, streams)
        enough = had >= wanted or (
            need.group is not None and had >= READ and self.rules.of(caller, need.group(request)) >= READ
        )
        allowed = enough and hidden is None and not why
        resource = resources[-1] if hidden is None else owner_resource(*hidden)
        self._audit.note(who=caller.name, what=call, resource=resource, peer=peer, allowed=allowed)
        if why:
            raise Forbidden(why)
        if not allowed:
            lacking = wanted if hidden is None else READ
            raise Forbidden(
                f"{caller.name} may not {'read' if lacking is READ else 'change'} {resource}: an administrator "
                f"gives the permission with `sarit acl grant user:{caller.name} {resource} {lacking.name}`"
            )
        return had

    def _token(self, claims: Sequence[tuple[str, str]], request: Any, caller: Caller) -> str:
        asked = _ASKED.get(getattr(request, "accessOperation", None), UPDATE)
        permissions: dict[str, Permission] = {}
        for resource, owner in claims:
            has = token_permission(resource.rpartition(":")[2], self.rules.of(caller, owner))
            granted = max(min(has, asked), permissions.get(resource, Permission.NONE))
            if granted is not Permission.NONE:
                permissions[resource] = granted
        now = self._env.clock.wall_ms() // 1000
        return self._keys().sign(permissions, now, self._seconds, _plain(caller.name))

    async def _listed(
        self, listed: Listed, method: Callable[[Any], Awaitable[Any]], request: Any, caller: Caller
    ) -> Any:
        """Return the first page with an item that the caller may read: clients stop at an empty page.

        The continuation token is the name of the last item shown (or the token of the request if there is none), not
        of the page's last item: the name of a hidden item must not be shown either."""
        first = getattr(request, "continuationToken", None)
        asked = "" if first is None else first.token
        while True:
            reply = await method(request)
            items = getattr(reply, listed.field)
            seen = [item for item in items if self.rules.of(caller, listed.resource(request, item)) >= READ]
            if seen or not items or listed.go_on is None:
                del items[:]
                items.extend(seen)
                if first is not None:
                    reply.continuationToken.token = listed.name(seen[-1]) if seen else asked
                return reply
            listed.go_on(request, reply)


def _refused_to_all(need: Need, request: Any, resources: Sequence[str], streams: Sequence[tuple[str, str]]) -> str:
    """Return why a request is refused to every caller; empty: it depends on the caller."""
    if not need.system and (
        any(each in (_SYSTEM, _SYSTEM_MIRROR) or each.startswith(f"{_SYSTEM}/") for each in resources)
        or any(scope == SYSTEM_SCOPE for scope, _ in streams)
    ):
        return f"scope {SYSTEM_SCOPE} is the system's: no call is about it, whoever makes it"
    if need.of_users and _name(request)[1].startswith("_"):
        return "names with _ in front are the system's: a reader group is created by the call for groups"
    return ""


__all__ = ["NEEDS", "Access", "Need"]
