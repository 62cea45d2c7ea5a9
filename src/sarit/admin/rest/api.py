"""The table of the REST API: every operation, once.  Routes, checks and the document follow.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.admin.rest.models import (
    ANY_NAME,
    BUCKET_MS,
    COMPONENT,
    EVENT_MS,
    FACET_VALUES,
    FACETS,
    FILTER,
    HITS,
    LIMIT,
    LINK_NAME,
    PAGE,
    QUERY,
    SORT,
    TAG,
    TIME_MS,
    USER_NAME,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.admin.rest.schema import Schema


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query."""

    name: str
    schema: Schema
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one path.  `name` is unique.  `body`: the model of the request.

    `answers`: by status what it means, and the model of the body (None: no body).  Those that every operation has are
    not listed: see `COMMON_ANSWERS`."""

    method: str
    path: str
    name: str
    group: str
    summary: str
    answers: Mapping[int, tuple[str, str | None]]
    body: str | None = None
    query: tuple[Parameter, ...] = ()

    @property
    def path_parameters(self) -> dict[str, Schema]:
        """The names in the path: only scopes and streams may be those of the system, and these are only shown."""
        schema = ANY_NAME if self.method == "GET" else USER_NAME
        special = {"readerGroupName": USER_NAME, "id": COMPONENT, "linkName": LINK_NAME,
                   "queryName": USER_NAME}  # fmt: skip
        return {name: special.get(name, schema) for name in re.findall(r"\{(\w+)\}", self.path)}


_PAGE: Final = (
    Parameter("limit", LIMIT, "how many at most"),
    Parameter("continuationToken", ANY_NAME, "from the answer before"),
)
_SCOPES: Final = "/v1/scopes"
_SCOPE: Final = f"{_SCOPES}/{{scopeName}}"
_STREAMS: Final = f"{_SCOPE}/streams"
_STREAM: Final = f"{_STREAMS}/{{streamName}}"
_GROUPS: Final = f"{_SCOPE}/readergroups"
_GROUP: Final = f"{_GROUPS}/{{readerGroupName}}"
_NO_SCOPE: Final = ("there is no such scope", "Error")
_NO_STREAM: Final = ("there is no such scope or stream", "Error")
_NO_GROUP: Final = ("there is no such scope or reader group", "Error")

SCOPES: Final = (
    Operation("GET", _SCOPES, "listScopes", "Scopes", "List the scopes, those of the system last",
              {200: ("the scopes", "ScopesList")}, query=_PAGE),
    Operation("POST", _SCOPES, "createScope", "Scopes", "Create a scope",
              {201: ("created", "ScopeProperty"), 409: ("the scope exists", "Error")}, body="CreateScopeRequest"),
    Operation("GET", _SCOPE, "getScope", "Scopes", "Show a scope",
              {200: ("the scope", "ScopeProperty"), 404: _NO_SCOPE}),
    Operation("DELETE", _SCOPE, "deleteScope", "Scopes", "Delete an empty scope",
              {204: ("deleted", None), 404: _NO_SCOPE, 412: ("the scope is not empty", "Error")}),
)  # fmt: skip
STREAMS: Final = (
    Operation("GET", _STREAMS, "listStreams", "Streams", "List the streams of a scope with their configurations",
              {200: ("the streams, by name", "StreamsList"), 404: _NO_SCOPE},
              query=(
                  Parameter("filter_type", FILTER, "showInternalStreams: those of the system, and no others"),
                  Parameter("filter_value", TAG, "the tag, with filter_type=tag"),
                  *_PAGE,
              )),
    Operation("POST", _STREAMS, "createStream", "Streams", "Create a stream",
              {201: ("created", "StreamProperty"), 404: _NO_SCOPE, 409: ("the stream exists", "Error")},
              body="CreateStreamRequest"),
    Operation("GET", _STREAM, "getStream", "Streams", "Show a stream with its configuration",
              {200: ("the stream", "StreamProperty"), 404: _NO_STREAM}),
    Operation("PUT", _STREAM, "updateStream", "Streams", "Replace the whole configuration of a stream",
              {200: ("the stream with its new configuration", "StreamProperty"), 404: _NO_STREAM,
               409: ("the stream is sealed", "Error")},
              body="UpdateStreamRequest"),
    Operation("DELETE", _STREAM, "deleteStream", "Streams", "Delete a sealed stream",
              {204: ("deleted", None), 404: _NO_STREAM, 412: ("the stream is not sealed", "Error")}),
    Operation("PUT", f"{_STREAM}/state", "updateStreamState", "Streams", "Seal a stream, for ever",
              {200: ("it is sealed", "StreamState"), 404: _NO_STREAM}, body="StreamState"),
    Operation("GET", f"{_STREAM}/scaling-events", "getScalingEvents", "Streams",
              "Show when a stream got which segments; the first event is the one in force at the first time",
              {200: ("the events, by time", "ScalingEvents"), 404: _NO_STREAM},
              query=(
                  Parameter("from", TIME_MS, "the first time", required=True),
                  Parameter("to", TIME_MS, "the last time", required=True),
              )),
)  # fmt: skip
_SEARCHABLE: Final = f"{_STREAM}/searchable"
_NO_INDEX: Final = ("there is no such scope or stream, or it is not searchable", "Error")

SEARCH: Final = (
    Operation("GET", _SEARCHABLE, "getSearchIndex", "Search", "Show the index of a stream for full-text search",
              {200: ("the index", "SearchIndex"), 404: _NO_INDEX}),
    Operation("PUT", _SEARCHABLE, "makeSearchable", "Search",
              "Make a stream searchable; with other settings than it has, all is indexed again",
              {200: ("the index", "SearchIndex"), 404: _NO_STREAM}, body="SearchSettings"),
    Operation("DELETE", _SEARCHABLE, "deleteSearchIndex", "Search", "Delete the index of a stream; its events stay",
              {204: ("deleted", None), 404: _NO_INDEX}),
    Operation("GET", f"{_STREAM}/search", "searchStream", "Search", "Search a stream by its index",
              {200: ("what was found", "SearchAnswer"), 404: _NO_STREAM},
              query=(
                  Parameter("q", QUERY, "the query", required=True),
                  Parameter("from", EVENT_MS, "events of this time and later ones"),
                  Parameter("until", EVENT_MS, "events before this time"),
                  Parameter("sort", SORT, "newest without it"),
                  Parameter("limit", HITS, "hits of a page; 20 without it"),
                  Parameter("page", PAGE, "from the answer before"),
                  Parameter("bucketMs", BUCKET_MS, "counts events over time, by so many ms"),
                  Parameter("facets", FACETS, "fields whose values are counted, with commas between them"),
                  Parameter("facetValues", FACET_VALUES, "the most frequent values of each; 10 without it"),
              )),
)  # fmt: skip
_CONTINUOUS: Final = f"{_STREAM}/continuous-queries"
_QUERY: Final = f"{_CONTINUOUS}/{{queryName}}"
_NO_QUERY: Final = ("there is no such scope, stream or query, or none that the caller may see", "Error")

CONTINUOUS: Final = (
    Operation("GET", _CONTINUOUS, "listContinuousQueries", "Search", "List the continuous queries of a stream",
              {200: ("the queries, by name, and how far they are", "ContinuousQueriesList"), 404: _NO_STREAM}),
    Operation("GET", _QUERY, "getContinuousQuery", "Search", "Show a continuous query",
              {200: ("the query", "ContinuousQuery"), 404: _NO_QUERY}),
    Operation("PUT", _QUERY, "putContinuousQuery", "Search", "Create a continuous query, or change its text",
              {200: ("the query, which may be pending", "ContinuousQuery"), 404: _NO_STREAM,
               412: ("it was changed meanwhile", "Error")}, body="ContinuousQueryRequest"),
    Operation("DELETE", _QUERY, "deleteContinuousQuery", "Search", "Delete a continuous query; its matches stay",
              {204: ("no event is matched any more, or soon", None), 404: _NO_QUERY}),
)  # fmt: skip
READER_GROUPS: Final = (
    Operation("GET", _GROUPS, "listReaderGroups", "ReaderGroups", "List the reader groups of a scope",
              {200: ("the reader groups, by name", "ReaderGroupsList"), 404: _NO_SCOPE}, query=_PAGE),
    Operation("GET", _GROUP, "getReaderGroup", "ReaderGroups", "Show a reader group with its streams and readers",
              {200: ("the reader group", "ReaderGroupProperty"), 404: _NO_GROUP}),
    Operation("DELETE", _GROUP, "deleteReaderGroup", "ReaderGroups", "Delete a reader group",
              {204: ("deleted", None), 404: _NO_GROUP}),
)  # fmt: skip
_LINKS: Final = "/v1/links"
_LINK: Final = f"{_LINKS}/{{linkName}}"
_NO_LINK: Final = ("there is no such link", "Error")

LINKS: Final = (
    Operation("GET", _LINKS, "listLinks", "Links", "List the links to and from other installations",
              {200: ("the links, by name, without the problems of their streams", "LinksList")}),
    Operation("POST", _LINKS, "createLink", "Links", "Create a link",
              {201: ("created", "LinkProperty"),
               409: ("its name is in use, or another link may write the same stream", "Error")},
              body="CreateLinkRequest"),
    Operation("GET", _LINK, "getLink", "Links", "Show a link, and how far it is",
              {200: ("the link", "LinkProperty"), 404: _NO_LINK}),
    Operation("PUT", _LINK, "updateLink", "Links", "Replace the settings of a link; direction and start stay",
              {200: ("the link with its new settings", "LinkProperty"), 404: _NO_LINK,
               409: ("another link may write the same stream", "Error"), 412: ("it was changed meanwhile", "Error")},
              body="LinkSettings"),
    Operation("PUT", f"{_LINK}/state", "updateLinkState", "Links", "Pause or resume a link",
              {200: ("the link", "LinkProperty"), 404: _NO_LINK, 412: ("it was changed meanwhile", "Error")},
              body="LinkState"),
    Operation("POST", f"{_LINK}/promotion", "promoteLink", "Links",
              "Promote the mirrors of a link: planned where it runs, or else some of them where the mirrors are; "
              "repeat it until none is left",
              {200: ("how far it is", "LinkPromotion"), 404: _NO_LINK, 412: ("it was changed meanwhile", "Error")},
              body="PromotionRequest"),
    Operation("DELETE", _LINK, "deleteLink", "Links", "Delete a link; its mirrors stay",
              {204: ("deleted", None), 404: _NO_LINK}),
)  # fmt: skip
_HEALTH: Final = "/v1/health"
_NO_PART: Final = {404: ("there is no such part", "Error")}


def _health(what: str, path: str, model: str, summary: str) -> tuple[Operation, Operation]:
    answers = {200: ("as it is now", model)}
    return (
        Operation("GET", f"{_HEALTH}{path}", f"get{what}", "Health", f"{summary} of the process", answers),
        Operation("GET", f"{_HEALTH}{path}/{{id}}", f"getContributor{what}", "Health", f"{summary} of one of its parts",
                  answers | _NO_PART),
    )  # fmt: skip


# Routes of fixed paths come before the path of a part alone, because the id of a part may be any text.
HEALTH: Final = (
    *_health("Readiness", "/readiness", "HealthAnswer", "Whether all requests are served:"),
    *_health("Liveness", "/liveness", "HealthAnswer", "Whether it runs:"),
    *_health("Details", "/details", "HealthDetails", "What is known"),
    *_health("Status", "/status", "HealthStatus", "The state"),
    *_health("Health", "", "HealthResult", "The health"),
)

OPERATIONS: Final = (*HEALTH, *SCOPES, *STREAMS, *SEARCH, *CONTINUOUS, *READER_GROUPS, *LINKS)

# What every operation may answer, and what every one with a body may.
COMMON_ANSWERS: Final = {
    400: "the request is wrong; nothing was done",
    401: "log in: the user or the password is wrong, or there is none; where there are users",
    403: "the caller may not do this; where there are users",
    500: "stored data is damaged, or there is a bug: see the log of the node",
    503: "not now, or not in time: a change may have been made all the same",
}
BODY_ANSWERS: Final = {
    413: "the body is too large",
    415: "the body is not application/json",
}


def answers_of(operation: Operation) -> dict[int, tuple[str, str | None]]:
    """Everything an operation may answer, by status."""
    common = COMMON_ANSWERS | (BODY_ANSWERS if operation.body else {})
    found = {status: (text, "Error") for status, text in common.items()}
    return dict(sorted({**found, **operation.answers}.items()))
