"""The bodies and parameters of the REST API as JSON Schema.  Names and types are those of Pravega's API.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.admin.rest.limits import (
    MAX_LINK_FIELD_CHARS,
    MAX_LINK_LIST,
    MAX_LINK_PATH_CHARS,
    MAX_LISTED,
    MAX_REST_FACET_VALUES,
    MAX_REST_FIELDS,
    MAX_REST_HITS,
    MAX_REST_INTERVAL_SECONDS,
    MAX_REST_PAGE_CHARS,
    MAX_REST_PATH_CHARS,
    MAX_REST_QUERY_CHARS,
    MAX_RETENTION_PART,
    MAX_RETENTION_VALUE,
    MAX_TAG_CHARS,
    MAX_TAGS,
)
from sarit.core.names import MAX_INTERNAL_NAME_CHARS, MAX_USER_NAME_CHARS
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM

if TYPE_CHECKING:
    from sarit.admin.rest.schema import Schema

_INT32: Final = (1 << 31) - 1
_INT64: Final = (1 << 63) - 1


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _body(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return the schema of an object that clients send.  Optional fields may be null, which counts as absent."""
    fields = {
        name: found if name in required else {"anyOf": [found, {"type": "null"}]} for name, found in properties.items()
    }
    return _object(required, **fields)


def _whole(low: int, high: int, description: str = "") -> Schema:
    found = {"type": "integer", "format": "int32" if high <= _INT32 else "int64", "minimum": low, "maximum": high}
    return {**found, "description": description} if description else found


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _model(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final[Schema] = {"type": "string"}
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_COUNT: Final = _whole(0, _INT64)
_NUMBER: Final[Schema] = {"type": "number", "format": "double"}

# What users may name; and what there is, which includes streams of the system.
USER_NAME: Final[Schema] = {
    "type": "string", "minLength": 1, "maxLength": MAX_USER_NAME_CHARS, "pattern": "^[A-Za-z0-9.\\-]+$",
}  # fmt: skip
ANY_NAME: Final[Schema] = {
    "type": "string", "minLength": 1, "maxLength": MAX_INTERNAL_NAME_CHARS, "pattern": "^_?[A-Za-z0-9.\\-]+$",
}  # fmt: skip
COMPONENT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[A-Za-z0-9._\\-]+$"}
TAG: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARS, "pattern": "^[^\\u0000]+$"}
LINK_NAME: Final[Schema] = {
    "type": "string", "minLength": 1, "maxLength": MAX_LINK_PATH_CHARS, "pattern": "^[a-z0-9][a-z0-9\\-]*$",
}  # fmt: skip
TIME_MS: Final = _whole(0, _INT64, "ms since 1970")
EVENT_MS: Final = _whole(-_INT64, _INT64, "ms since 1970; events have times before it, too")
LIMIT: Final = _whole(1, MAX_LISTED, "at most so many; continuationToken says where the next ones begin")
FILTER: Final[Schema] = {"type": "string", "enum": ["showInternalStreams", "tag"]}
QUERY: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_REST_QUERY_CHARS}
SORT: Final[Schema] = {"type": "string", "enum": ["newest", "oldest", "score"]}
HITS: Final = _whole(0, MAX_REST_HITS, "of hits")
PAGE: Final[Schema] = {"type": "string", "maxLength": MAX_REST_PAGE_CHARS, "pattern": "^[A-Za-z0-9_=\\-]*$"}
BUCKET_MS: Final = _whole(1000, _INT64, "ms")
FACETS: Final[Schema] = {"type": "string", "maxLength": MAX_REST_QUERY_CHARS}
FACET_VALUES: Final = _whole(1, MAX_REST_FACET_VALUES, "of each field")

_CONTINUATION: Final[Schema] = {**_TEXT, "description": "there may be more: ask again with it; absent at the end"}

_PATH: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_REST_PATH_CHARS}
_LINK_TEXT: Final[Schema] = {"type": "string", "maxLength": MAX_LINK_FIELD_CHARS}
_GLOBS: Final[Schema] = {**_list(_LINK_TEXT), "maxItems": MAX_LINK_LIST, "description": "of SCOPE/STREAM, as plant/*"}

_CONFIG: Final[dict[str, Schema]] = {
    "scalingPolicy": _model("ScalingConfig"),
    "retentionPolicy": _model("RetentionConfig"),
    "streamTags": _model("TagsList"),
    "timestampAggregationTimeout": _whole(0, _INT64, "ms"),
    "rolloverSizeBytes": _whole(0, _INT64),
}

MODELS: Final[dict[str, Schema]] = {
    "CreateScopeRequest": _body(("scopeName",), scopeName=USER_NAME),
    "ScopeProperty": _object(("scopeName",), scopeName=_TEXT),
    "ScopesList": _object(("scopes",), scopes=_list(_model("ScopeProperty")), continuationToken=_CONTINUATION),
    "CreateStreamRequest": _body(("streamName",), streamName=USER_NAME, **_CONFIG),
    "UpdateStreamRequest": _body(("scalingPolicy",), **_CONFIG),
    "StreamProperty": _object(
        ("scopeName", "streamName", "scalingPolicy", "tags"),
        scopeName=_TEXT,
        streamName=_TEXT,
        scalingPolicy=_model("ScalingConfig"),
        retentionPolicy=_model("RetentionConfig"),
        tags=_list(_TEXT),
        timestampAggregationTimeout=_COUNT,
        rolloverSizeBytes=_COUNT,
    ),
    "StreamsList": _object(("streams",), streams=_list(_model("StreamProperty")), continuationToken=_CONTINUATION),
    "TagsList": {**_list(TAG), "maxItems": MAX_TAGS},
    "ScalingConfig": _body(
        ("type",),
        type={
            "type": "string",
            "enum": ["FIXED_NUM_SEGMENTS", "BY_RATE_IN_KBYTES_PER_SEC", "BY_RATE_IN_EVENTS_PER_SEC"],
        },
        targetRate=_whole(0, _INT32, "of each segment, in KB or events per second; ignored without a rate"),
        scaleFactor=_whole(0, _INT32, "how many segments replace one that is above the rate; ignored without a rate"),
        minSegments=_whole(1, MAX_SEGMENTS_PER_STREAM, "1 unless given"),
    ),
    "RetentionConfig": _body(
        ("type",),
        type={"type": "string", "enum": ["LIMITED_DAYS", "LIMITED_SIZE_MB"]},
        value=_whole(0, MAX_RETENTION_VALUE, "days or MiB; 0 with timeBasedRetention"),
        timeBasedRetention=_model("TimeBasedRetention"),
        maxValue=_whole(0, MAX_RETENTION_VALUE, "days or MiB; 0 with maxTimeBasedRetention"),
        maxTimeBasedRetention=_model("TimeBasedRetention"),
    ),
    "TimeBasedRetention": _body(
        days=_whole(0, MAX_RETENTION_PART),
        hours=_whole(0, MAX_RETENTION_PART),
        minutes=_whole(0, MAX_RETENTION_PART),
    ),
    "StreamState": _body(("streamState",), streamState={"type": "string", "enum": ["SEALED"]}),
    "ScalingEvents": _list(_model("ScaleMetadata")),
    "ScaleMetadata": _object(
        ("timestamp", "segments", "splits", "merges"),
        timestamp={**_COUNT, "description": "ms since 1970"},
        segments=_list(_model("Segment")),
        splits=_COUNT,
        merges=_COUNT,
    ),
    "Segment": _object(
        ("number", "epoch", "start", "keyStart", "keyEnd"),
        number=_COUNT,
        epoch=_COUNT,
        start={**_COUNT, "description": "when it was created, ms since 1970"},
        keyStart=_NUMBER,
        keyEnd=_NUMBER,
    ),
    "ReaderGroupsList": _object(
        ("readerGroups",), readerGroups=_list(_model("ReaderGroupName")), continuationToken=_CONTINUATION
    ),
    "ReaderGroupName": _object(("readerGroupName",), readerGroupName=_TEXT),
    "ReaderGroupProperty": _object(
        ("scopeName", "readerGroupName", "streamList", "onlineReaderIds"),
        scopeName=_TEXT,
        readerGroupName=_TEXT,
        streamList=_list(_TEXT),
        onlineReaderIds=_list(_TEXT),
    ),
    "LinksList": _object(("links",), links=_list(_model("LinkProperty"))),
    "CreateLinkRequest": _body(
        ("linkName", "settings"), linkName=LINK_NAME, settings=_model("LinkSettings"), paused=_BOOLEAN
    ),
    "LinkSettings": _body(
        ("direction", "peer"),
        direction={"type": "string", "enum": ["push", "pull"]},
        peer={**_LINK_TEXT, "description": "HOST:PORT of a controller; tls:// before it asks for TLS"},
        user=_LINK_TEXT,
        password={**_LINK_TEXT, "description": "where the node finds it: file:PATH or env:NAME; never the password"},
        ca=_LINK_TEXT,
        include=_GLOBS,
        exclude=_GLOBS,
        priorities={**_list(_model("LinkPriority")), "maxItems": MAX_LINK_LIST},
        bytesPerSecond=_whole(0, _INT64, "0: as fast as it can"),
        window={**_LINK_TEXT, "description": "times of the day (UTC), as 22:00-06:00"},
        startMs=_whole(-1, _INT64, "ms since 1970; 0: all there is; -1: only what comes"),
        retention=_model("LinkRetention"),
        followTruncation=_BOOLEAN,
        holdBytes=_whole(0, _INT64, "what the source keeps for the link; 0: nothing"),
        overflow={"type": "string", "enum": ["throttle", "drop"]},
        tables=_BOOLEAN,
        registry=_BOOLEAN,
        groups=_BOOLEAN,
        restart=_BOOLEAN,
        discardDivergent=_BOOLEAN,
    ),
    "LinkPriority": _object(("glob", "level"), glob=_LINK_TEXT, level=_whole(-_INT32, _INT32)),
    "LinkRetention": _body(
        ("type", "limit"),
        type={"type": "string", "enum": ["none", "time", "size"]},
        limit=_whole(0, _INT64, "ms or bytes"),
        maximum=_whole(0, _INT64, "ms or bytes"),
    ),
    "LinkProperty": _object(
        ("linkName", "id", "created", "role", "state", "settings", "peerInstallation", "holder", "problem", "status"),
        linkName=_TEXT,
        id=_TEXT,
        created=TIME_MS,
        role={"type": "string", "enum": ["active", "passive"]},
        state={"type": "string", "enum": ["active", "paused", "draining", "promoted"]},
        settings=_model("LinkSettings"),
        peerInstallation={**_TEXT, "description": "empty before the first contact"},
        holder={**_TEXT, "description": "the worker that runs it, as HOST:PORT"},
        problem={**_TEXT, "description": "the error with which its job ended last"},
        status=_model("LinkStatus"),
    ),
    "LinkStatus": _object(
        (
            "up",
            "contact",
            "streams",
            "lagBytes",
            "lagSeconds",
            "copiedBytes",
            "lostBytes",
            "clockSkewMs",
            "compressed",
            "failing",
            "note",
            "problems",
        ),
        up={**_BOOLEAN, "description": "whether the peer answered last"},
        contact=TIME_MS,
        streams=_COUNT,
        lagBytes=_COUNT,
        lagSeconds=_NUMBER,
        copiedBytes=_COUNT,
        lostBytes=_COUNT,
        clockSkewMs=_whole(-_INT64, _INT64),
        compressed=_BOOLEAN,
        failing=_COUNT,
        note=_TEXT,
        problems=_list(_model("LinkProblem")),
    ),
    "LinkProblem": _object(("stream", "text"), stream=_TEXT, text=_TEXT),
    "LinkState": _body(("state",), state={"type": "string", "enum": ["active", "paused"]}),
    "PromotionRequest": _body(("planned",), planned=_BOOLEAN),
    "LinkPromotion": _object(
        ("link", "promoted", "left", "problems"),
        link=_model("LinkProperty"),
        promoted=_COUNT,
        left=_COUNT,
        problems=_list(_model("LinkProblem")),
    ),
    "SearchSettings": _body(
        fields={
            **_list(_model("SearchField")),
            "maxItems": MAX_REST_FIELDS,
            "description": "without them they are inferred from the first events",
        },
        timeField={**_PATH, "description": "the field that says when an event happened"},
        start={"type": "string", "enum": ["head", "tail"], "description": "where a new index begins"},
        intervalSeconds=_whole(1, MAX_REST_INTERVAL_SECONDS, "events can be found so long after they were written"),
    ),
    "SearchField": _body(
        ("path", "kind"),
        path={**_PATH, "description": "names in objects, with dots between them"},
        kind={"type": "string", "enum": ["text", "keyword", "number", "time", "boolean"]},
    ),
    "SearchIndex": _object(
        ("settings", "state", "events", "shards", "bytes", "partly", "lostBytes"),
        settings=_model("SearchSettings"),
        state={"type": "string", "enum": ["running", "waiting", "failing", "complete"]},
        events={**_COUNT, "description": "that were indexed"},
        shards=_COUNT,
        bytes={**_COUNT, "description": "of the index"},
        partly={**_COUNT, "description": "events of which a part is not searched"},
        lostBytes={**_COUNT, "description": "that were truncated before they were indexed"},
        lastCommit=TIME_MS,
        worker={**_TEXT, "description": "that indexes, as HOST:PORT"},
        problem={**_TEXT, "description": "why nothing is indexed"},
    ),
    "SearchAnswer": _object(
        ("hits", "total", "histogram", "facets", "lastCommit"),
        hits=_list(_model("SearchHit")),
        total={**_COUNT, "description": "of all pages"},
        histogram={**_list(_model("SearchBucket")), "description": "of the first page, with bucketMs"},
        facets={**_list(_model("SearchFacet")), "description": "of the first page, with facets"},
        cut={**_TEXT, "description": "events before this cut are in the answer, of all pages"},
        lastCommit={**_COUNT, "description": "when the index got its newest events, ms since 1970; 0: never"},
        page={**_TEXT, "description": "there is more: ask again with it"},
    ),
    "SearchHit": _object(
        ("segment", "epoch", "offset", "time", "score"),
        segment={**_COUNT, "description": "the number of the segment"},
        epoch=_COUNT,
        offset={**_COUNT, "description": "where the event begins"},
        time=EVENT_MS,
        score=_NUMBER,
        event={**_TEXT, "description": "as UTF-8; absent: it was truncated meanwhile"},
        size={**_COUNT, "description": "bytes of the event, of which the first 64 KiB are shown"},
        highlights={**_list(_model("SearchSpan")), "description": "what matches, in characters of `event`"},
    ),
    "SearchSpan": _object(("begin", "end"), begin=_COUNT, end=_COUNT),
    "SearchBucket": _object(("begin", "events"), begin=EVENT_MS, events=_COUNT),
    "SearchFacet": _object(("field", "values"), field=_TEXT, values=_list(_model("SearchValue"))),
    "SearchValue": _object(("value", "events"), value=_TEXT, events=_COUNT),
    "ContinuousQueryRequest": _body(
        ("query", "output"),
        query=QUERY,
        output={**_LINK_TEXT, "description": "the stream that gets the matches, as SCOPE/STREAM"},
        withEvent={**_BOOLEAN, "description": "each match has the text of its event"},
        fields={
            **_list(_model("SearchField")),
            "maxItems": MAX_REST_FIELDS,
            "description": "that queries of the stream may name, besides those that others have given",
        },
    ),
    "ContinuousQuery": _object(
        ("name", "query", "output", "withEvent", "id", "state", "created"),
        name=_TEXT,
        query=_TEXT,
        output=_TEXT,
        withEvent=_BOOLEAN,
        id={**_TEXT, "description": "unique, also among queries of the same name"},
        state={"type": "string", "enum": ["pending", "active", "failed", "deleting"]},
        created=TIME_MS,
        maker={**_TEXT, "description": "the user with whose rights it acts"},
        problem={**_TEXT, "description": "why it holds for no event"},
        holdsFrom={**_TEXT, "description": "it holds for events from this cut"},
    ),
    "ContinuousQueriesList": _object(
        ("queries", "events", "matches"),
        queries=_list(_model("ContinuousQuery")),
        events={**_COUNT, "description": "that the queries were asked about"},
        matches={**_COUNT, "description": "that were written"},
        problem={**_TEXT, "description": "why the queries are not asked now"},
    ),
    "HealthResult": _object(
        ("name", "status", "readiness", "liveness", "details", "children"),
        name=_TEXT,
        status=_model("HealthStatus"),
        readiness=_BOOLEAN,
        liveness=_BOOLEAN,
        details=_model("HealthDetails"),
        children={"type": "object", "additionalProperties": _model("HealthResult")},
    ),
    "HealthStatus": {"type": "string", "enum": ["UP", "STARTING", "NEW", "UNKNOWN", "FAILED", "DOWN"]},
    "HealthDetails": {"type": "object", "additionalProperties": _TEXT},
    "HealthAnswer": _BOOLEAN,
    "Error": _object(("error",), error=_TEXT),
}
