from sarit.rpc.generated import controller_pb2 as _controller_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchCut(_message.Message):
    __slots__ = ("segments", "offsets")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("scope", "stream", "query", "fromMs", "untilMs", "sort", "limit", "page", "bucketMs", "facets", "facetLimit")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    FROMMS_FIELD_NUMBER: _ClassVar[int]
    UNTILMS_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    BUCKETMS_FIELD_NUMBER: _ClassVar[int]
    FACETS_FIELD_NUMBER: _ClassVar[int]
    FACETLIMIT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    query: bytes
    fromMs: int
    untilMs: int
    sort: str
    limit: int
    page: bytes
    bucketMs: int
    facets: _containers.RepeatedScalarFieldContainer[str]
    facetLimit: int
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., query: _Optional[bytes] = ..., fromMs: _Optional[int] = ..., untilMs: _Optional[int] = ..., sort: _Optional[str] = ..., limit: _Optional[int] = ..., page: _Optional[bytes] = ..., bucketMs: _Optional[int] = ..., facets: _Optional[_Iterable[str]] = ..., facetLimit: _Optional[int] = ...) -> None: ...

class SearchHit(_message.Message):
    __slots__ = ("segment", "offset", "timeMs", "score", "orderKey")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMEMS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    ORDERKEY_FIELD_NUMBER: _ClassVar[int]
    segment: int
    offset: int
    timeMs: int
    score: float
    orderKey: int
    def __init__(self, segment: _Optional[int] = ..., offset: _Optional[int] = ..., timeMs: _Optional[int] = ..., score: _Optional[float] = ..., orderKey: _Optional[int] = ...) -> None: ...

class SearchBucket(_message.Message):
    __slots__ = ("beginMs", "events")
    BEGINMS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    beginMs: int
    events: int
    def __init__(self, beginMs: _Optional[int] = ..., events: _Optional[int] = ...) -> None: ...

class SearchValue(_message.Message):
    __slots__ = ("value", "events")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    value: str
    events: int
    def __init__(self, value: _Optional[str] = ..., events: _Optional[int] = ...) -> None: ...

class SearchFacet(_message.Message):
    __slots__ = ("field", "values")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    field: str
    values: _containers.RepeatedCompositeFieldContainer[SearchValue]
    def __init__(self, field: _Optional[str] = ..., values: _Optional[_Iterable[_Union[SearchValue, _Mapping]]] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("hits", "total", "buckets", "facets", "cut", "committedMs", "page", "shards")
    HITS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    FACETS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    COMMITTEDMS_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[SearchHit]
    total: int
    buckets: _containers.RepeatedCompositeFieldContainer[SearchBucket]
    facets: _containers.RepeatedCompositeFieldContainer[SearchFacet]
    cut: SearchCut
    committedMs: int
    page: bytes
    shards: int
    def __init__(self, hits: _Optional[_Iterable[_Union[SearchHit, _Mapping]]] = ..., total: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[SearchBucket, _Mapping]]] = ..., facets: _Optional[_Iterable[_Union[SearchFacet, _Mapping]]] = ..., cut: _Optional[_Union[SearchCut, _Mapping]] = ..., committedMs: _Optional[int] = ..., page: _Optional[bytes] = ..., shards: _Optional[int] = ...) -> None: ...

class SearchShardsRequest(_message.Message):
    __slots__ = ("scope", "stream", "commits", "shards", "until", "query", "low", "high", "sort", "limit", "bucketMs", "facets", "facetLimit")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BUCKETMS_FIELD_NUMBER: _ClassVar[int]
    FACETS_FIELD_NUMBER: _ClassVar[int]
    FACETLIMIT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    commits: int
    shards: _containers.RepeatedScalarFieldContainer[bytes]
    until: SearchCut
    query: bytes
    low: int
    high: int
    sort: str
    limit: int
    bucketMs: int
    facets: _containers.RepeatedScalarFieldContainer[str]
    facetLimit: int
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., commits: _Optional[int] = ..., shards: _Optional[_Iterable[bytes]] = ..., until: _Optional[_Union[SearchCut, _Mapping]] = ..., query: _Optional[bytes] = ..., low: _Optional[int] = ..., high: _Optional[int] = ..., sort: _Optional[str] = ..., limit: _Optional[int] = ..., bucketMs: _Optional[int] = ..., facets: _Optional[_Iterable[str]] = ..., facetLimit: _Optional[int] = ...) -> None: ...

class SearchShardsResponse(_message.Message):
    __slots__ = ("hits", "total", "buckets", "facets")
    HITS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    FACETS_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[SearchHit]
    total: int
    buckets: _containers.RepeatedCompositeFieldContainer[SearchBucket]
    facets: _containers.RepeatedCompositeFieldContainer[SearchFacet]
    def __init__(self, hits: _Optional[_Iterable[_Union[SearchHit, _Mapping]]] = ..., total: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[SearchBucket, _Mapping]]] = ..., facets: _Optional[_Iterable[_Union[SearchFacet, _Mapping]]] = ...) -> None: ...

class SearchInfoRequest(_message.Message):
    __slots__ = ("scope", "stream")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ...) -> None: ...

class SearchField(_message.Message):
    __slots__ = ("path", "kind")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: str
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class SearchInfoResponse(_message.Message):
    __slots__ = ("searchable", "events", "shards", "bytes", "cut", "committedMs", "lostBytes", "partly", "bytesBehind", "problem", "fields", "timeField", "intervalSeconds", "start")
    SEARCHABLE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    COMMITTEDMS_FIELD_NUMBER: _ClassVar[int]
    LOSTBYTES_FIELD_NUMBER: _ClassVar[int]
    PARTLY_FIELD_NUMBER: _ClassVar[int]
    BYTESBEHIND_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    TIMEFIELD_FIELD_NUMBER: _ClassVar[int]
    INTERVALSECONDS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    searchable: bool
    events: int
    shards: int
    bytes: int
    cut: SearchCut
    committedMs: int
    lostBytes: int
    partly: int
    bytesBehind: int
    problem: str
    fields: _containers.RepeatedCompositeFieldContainer[SearchField]
    timeField: str
    intervalSeconds: int
    start: str
    def __init__(self, searchable: _Optional[bool] = ..., events: _Optional[int] = ..., shards: _Optional[int] = ..., bytes: _Optional[int] = ..., cut: _Optional[_Union[SearchCut, _Mapping]] = ..., committedMs: _Optional[int] = ..., lostBytes: _Optional[int] = ..., partly: _Optional[int] = ..., bytesBehind: _Optional[int] = ..., problem: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[SearchField, _Mapping]]] = ..., timeField: _Optional[str] = ..., intervalSeconds: _Optional[int] = ..., start: _Optional[str] = ...) -> None: ...

class ContinuousQuery(_message.Message):
    __slots__ = ("name", "query", "output", "withEvent", "queryId", "maker", "state", "problem", "holdsFrom", "version", "createdMs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WITHEVENT_FIELD_NUMBER: _ClassVar[int]
    QUERYID_FIELD_NUMBER: _ClassVar[int]
    MAKER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    HOLDSFROM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATEDMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    query: bytes
    output: _controller_pb2.StreamInfo
    withEvent: bool
    queryId: str
    maker: str
    state: str
    problem: str
    holdsFrom: SearchCut
    version: int
    createdMs: int
    def __init__(self, name: _Optional[str] = ..., query: _Optional[bytes] = ..., output: _Optional[_Union[_controller_pb2.StreamInfo, _Mapping]] = ..., withEvent: _Optional[bool] = ..., queryId: _Optional[str] = ..., maker: _Optional[str] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., holdsFrom: _Optional[_Union[SearchCut, _Mapping]] = ..., version: _Optional[int] = ..., createdMs: _Optional[int] = ...) -> None: ...

class PutContinuousRequest(_message.Message):
    __slots__ = ("scope", "stream", "name", "query", "output", "withEvent", "version", "mapping", "inferred")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WITHEVENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    INFERRED_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    name: str
    query: bytes
    output: _controller_pb2.StreamInfo
    withEvent: bool
    version: int
    mapping: bytes
    inferred: bool
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., name: _Optional[str] = ..., query: _Optional[bytes] = ..., output: _Optional[_Union[_controller_pb2.StreamInfo, _Mapping]] = ..., withEvent: _Optional[bool] = ..., version: _Optional[int] = ..., mapping: _Optional[bytes] = ..., inferred: _Optional[bool] = ...) -> None: ...

class PutContinuousResponse(_message.Message):
    __slots__ = ("query",)
    QUERY_FIELD_NUMBER: _ClassVar[int]
    query: ContinuousQuery
    def __init__(self, query: _Optional[_Union[ContinuousQuery, _Mapping]] = ...) -> None: ...

class ListContinuousRequest(_message.Message):
    __slots__ = ("scope", "stream", "after", "name")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    after: str
    name: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., after: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ListContinuousResponse(_message.Message):
    __slots__ = ("queries", "events", "matches", "problem", "cut", "more")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[ContinuousQuery]
    events: int
    matches: int
    problem: str
    cut: SearchCut
    more: bool
    def __init__(self, queries: _Optional[_Iterable[_Union[ContinuousQuery, _Mapping]]] = ..., events: _Optional[int] = ..., matches: _Optional[int] = ..., problem: _Optional[str] = ..., cut: _Optional[_Union[SearchCut, _Mapping]] = ..., more: _Optional[bool] = ...) -> None: ...

class DeleteContinuousRequest(_message.Message):
    __slots__ = ("scope", "stream", "name", "output")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    name: str
    output: _controller_pb2.StreamInfo
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., name: _Optional[str] = ..., output: _Optional[_Union[_controller_pb2.StreamInfo, _Mapping]] = ...) -> None: ...

class DeleteContinuousResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
