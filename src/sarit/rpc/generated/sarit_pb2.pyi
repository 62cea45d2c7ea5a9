from sarit.rpc.generated import controller_pb2 as _controller_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CutAtRequest(_message.Message):
    __slots__ = ("scope", "stream", "timeMs")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TIMEMS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    timeMs: int
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., timeMs: _Optional[int] = ...) -> None: ...

class CutAtResponse(_message.Message):
    __slots__ = ("cut", "recorded", "recordedMs")
    class CutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    CUT_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    RECORDEDMS_FIELD_NUMBER: _ClassVar[int]
    cut: _containers.ScalarMap[int, int]
    recorded: bool
    recordedMs: int
    def __init__(self, cut: _Optional[_Mapping[int, int]] = ..., recorded: _Optional[bool] = ..., recordedMs: _Optional[int] = ...) -> None: ...

class StreamConfigsRequest(_message.Message):
    __slots__ = ("scope", "tag", "after")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    scope: str
    tag: str
    after: str
    def __init__(self, scope: _Optional[str] = ..., tag: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class StreamConfigsResponse(_message.Message):
    __slots__ = ("streams",)
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[_controller_pb2.StreamConfig]
    def __init__(self, streams: _Optional[_Iterable[_Union[_controller_pb2.StreamConfig, _Mapping]]] = ...) -> None: ...

class ScalingEventsRequest(_message.Message):
    __slots__ = ("scope", "stream", "fromMs", "toMs")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FROMMS_FIELD_NUMBER: _ClassVar[int]
    TOMS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    fromMs: int
    toMs: int
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., fromMs: _Optional[int] = ..., toMs: _Optional[int] = ...) -> None: ...

class ScaledSegment(_message.Message):
    __slots__ = ("segmentId", "startMs", "low", "high")
    SEGMENTID_FIELD_NUMBER: _ClassVar[int]
    STARTMS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    segmentId: int
    startMs: int
    low: float
    high: float
    def __init__(self, segmentId: _Optional[int] = ..., startMs: _Optional[int] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class ScalingEvent(_message.Message):
    __slots__ = ("timeMs", "segments", "splits", "merges")
    TIMEMS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    MERGES_FIELD_NUMBER: _ClassVar[int]
    timeMs: int
    segments: _containers.RepeatedCompositeFieldContainer[ScaledSegment]
    splits: int
    merges: int
    def __init__(self, timeMs: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[ScaledSegment, _Mapping]]] = ..., splits: _Optional[int] = ..., merges: _Optional[int] = ...) -> None: ...

class ScalingEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ScalingEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[ScalingEvent, _Mapping]]] = ...) -> None: ...

class AccessRule(_message.Message):
    __slots__ = ("subject", "resource", "permission")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    subject: str
    resource: str
    permission: str
    def __init__(self, subject: _Optional[str] = ..., resource: _Optional[str] = ..., permission: _Optional[str] = ...) -> None: ...

class ListRulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRulesResponse(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[AccessRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ...) -> None: ...

class ChangeRulesRequest(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[AccessRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ...) -> None: ...

class ChangeRulesResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: int
    def __init__(self, changed: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("subject", "limits")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    limits: str
    def __init__(self, subject: _Optional[str] = ..., limits: _Optional[str] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "full")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    full: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., full: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeQuotasRequest(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class ChangeQuotasResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: int
    def __init__(self, changed: _Optional[int] = ...) -> None: ...

class QuotaUseRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class QuotaUseResponse(_message.Message):
    __slots__ = ("streams", "segments", "storageBytes")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    STORAGEBYTES_FIELD_NUMBER: _ClassVar[int]
    streams: int
    segments: int
    storageBytes: int
    def __init__(self, streams: _Optional[int] = ..., segments: _Optional[int] = ..., storageBytes: _Optional[int] = ...) -> None: ...

class CreationIdRequest(_message.Message):
    __slots__ = ("scope", "stream", "readerGroup", "table")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    READERGROUP_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    readerGroup: str
    table: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., readerGroup: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class CreationIdResponse(_message.Message):
    __slots__ = ("creationId",)
    CREATIONID_FIELD_NUMBER: _ClassVar[int]
    creationId: bytes
    def __init__(self, creationId: _Optional[bytes] = ...) -> None: ...

class DropSubscriberRequest(_message.Message):
    __slots__ = ("scope", "stream", "subscriber")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    subscriber: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., subscriber: _Optional[str] = ...) -> None: ...

class DropSubscriberResponse(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: bool
    def __init__(self, dropped: _Optional[bool] = ...) -> None: ...

class StreamPropertiesRequest(_message.Message):
    __slots__ = ("scope", "stream")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ...) -> None: ...

class StreamPropertiesResponse(_message.Message):
    __slots__ = ("properties", "link")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    link: str
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ..., link: _Optional[str] = ...) -> None: ...

class ChangeStreamPropertiesRequest(_message.Message):
    __slots__ = ("scope", "stream", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ("scope", "stream", "kind", "name", "settings")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    kind: str
    name: str
    settings: bytes
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., settings: _Optional[bytes] = ...) -> None: ...

class CreateJobResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: _Optional[bool] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("scope", "stream")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ...) -> None: ...

class JobState(_message.Message):
    __slots__ = ("kind", "name", "settings", "state", "holder", "done", "problem")
    class StateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    settings: bytes
    state: _containers.ScalarMap[str, str]
    holder: str
    done: bool
    problem: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., settings: _Optional[bytes] = ..., state: _Optional[_Mapping[str, str]] = ..., holder: _Optional[str] = ..., done: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobState]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobState, _Mapping]]] = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    __slots__ = ("scope", "stream", "kind", "name")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    scope: str
    stream: str
    kind: str
    name: str
    def __init__(self, scope: _Optional[str] = ..., stream: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkPriority(_message.Message):
    __slots__ = ("glob", "level")
    GLOB_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    glob: str
    level: int
    def __init__(self, glob: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class LinkSettings(_message.Message):
    __slots__ = ("direction", "peer", "user", "password", "ca", "include", "exclude", "priorities", "bytesPerSecond", "window", "startMs", "retention", "followTruncation", "holdBytes", "overflow", "tables", "registry", "groups", "restart", "discardDivergent")
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    CA_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    BYTESPERSECOND_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    STARTMS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    FOLLOWTRUNCATION_FIELD_NUMBER: _ClassVar[int]
    HOLDBYTES_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    DISCARDDIVERGENT_FIELD_NUMBER: _ClassVar[int]
    direction: str
    peer: str
    user: str
    password: str
    ca: str
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    priorities: _containers.RepeatedCompositeFieldContainer[LinkPriority]
    bytesPerSecond: int
    window: str
    startMs: int
    retention: _controller_pb2.RetentionPolicy
    followTruncation: bool
    holdBytes: int
    overflow: str
    tables: bool
    registry: bool
    groups: bool
    restart: bool
    discardDivergent: bool
    def __init__(self, direction: _Optional[str] = ..., peer: _Optional[str] = ..., user: _Optional[str] = ..., password: _Optional[str] = ..., ca: _Optional[str] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., priorities: _Optional[_Iterable[_Union[LinkPriority, _Mapping]]] = ..., bytesPerSecond: _Optional[int] = ..., window: _Optional[str] = ..., startMs: _Optional[int] = ..., retention: _Optional[_Union[_controller_pb2.RetentionPolicy, _Mapping]] = ..., followTruncation: _Optional[bool] = ..., holdBytes: _Optional[int] = ..., overflow: _Optional[str] = ..., tables: _Optional[bool] = ..., registry: _Optional[bool] = ..., groups: _Optional[bool] = ..., restart: _Optional[bool] = ..., discardDivergent: _Optional[bool] = ...) -> None: ...

class LinkProblem(_message.Message):
    __slots__ = ("stream", "text")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    stream: str
    text: str
    def __init__(self, stream: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("up", "contactMs", "streams", "lagBytes", "lagSeconds", "copiedBytes", "lostBytes", "clockSkewMs", "compressed", "failing", "problems", "note")
    UP_FIELD_NUMBER: _ClassVar[int]
    CONTACTMS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    LAGBYTES_FIELD_NUMBER: _ClassVar[int]
    LAGSECONDS_FIELD_NUMBER: _ClassVar[int]
    COPIEDBYTES_FIELD_NUMBER: _ClassVar[int]
    LOSTBYTES_FIELD_NUMBER: _ClassVar[int]
    CLOCKSKEWMS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    up: bool
    contactMs: int
    streams: int
    lagBytes: int
    lagSeconds: float
    copiedBytes: int
    lostBytes: int
    clockSkewMs: int
    compressed: bool
    failing: int
    problems: _containers.RepeatedCompositeFieldContainer[LinkProblem]
    note: str
    def __init__(self, up: _Optional[bool] = ..., contactMs: _Optional[int] = ..., streams: _Optional[int] = ..., lagBytes: _Optional[int] = ..., lagSeconds: _Optional[float] = ..., copiedBytes: _Optional[int] = ..., lostBytes: _Optional[int] = ..., clockSkewMs: _Optional[int] = ..., compressed: _Optional[bool] = ..., failing: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[LinkProblem, _Mapping]]] = ..., note: _Optional[str] = ...) -> None: ...

class LinkInfo(_message.Message):
    __slots__ = ("name", "linkId", "createdMs", "role", "state", "settings", "peerInstallation", "version", "status", "holder", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LINKID_FIELD_NUMBER: _ClassVar[int]
    CREATEDMS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PEERINSTALLATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    linkId: bytes
    createdMs: int
    role: str
    state: str
    settings: LinkSettings
    peerInstallation: str
    version: int
    status: LinkStatus
    holder: str
    problem: str
    def __init__(self, name: _Optional[str] = ..., linkId: _Optional[bytes] = ..., createdMs: _Optional[int] = ..., role: _Optional[str] = ..., state: _Optional[str] = ..., settings: _Optional[_Union[LinkSettings, _Mapping]] = ..., peerInstallation: _Optional[str] = ..., version: _Optional[int] = ..., status: _Optional[_Union[LinkStatus, _Mapping]] = ..., holder: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class CreateLinkRequest(_message.Message):
    __slots__ = ("name", "linkId", "settings", "paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LINKID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    linkId: bytes
    settings: LinkSettings
    paused: bool
    def __init__(self, name: _Optional[str] = ..., linkId: _Optional[bytes] = ..., settings: _Optional[_Union[LinkSettings, _Mapping]] = ..., paused: _Optional[bool] = ...) -> None: ...

class ListLinksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLinksResponse(_message.Message):
    __slots__ = ("links",)
    LINKS_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[LinkInfo]
    def __init__(self, links: _Optional[_Iterable[_Union[LinkInfo, _Mapping]]] = ...) -> None: ...

class LinkStatusRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ChangeLinkRequest(_message.Message):
    __slots__ = ("name", "state", "settings", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    settings: LinkSettings
    version: int
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., settings: _Optional[_Union[LinkSettings, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteLinkRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteLinkResponse(_message.Message):
    __slots__ = ("problem",)
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    problem: str
    def __init__(self, problem: _Optional[str] = ...) -> None: ...

class PromoteLinkRequest(_message.Message):
    __slots__ = ("name", "planned")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    name: str
    planned: bool
    def __init__(self, name: _Optional[str] = ..., planned: _Optional[bool] = ...) -> None: ...

class PromoteLinkResponse(_message.Message):
    __slots__ = ("link", "promoted", "left", "problems")
    LINK_FIELD_NUMBER: _ClassVar[int]
    PROMOTED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    link: LinkInfo
    promoted: int
    left: int
    problems: _containers.RepeatedCompositeFieldContainer[LinkProblem]
    def __init__(self, link: _Optional[_Union[LinkInfo, _Mapping]] = ..., promoted: _Optional[int] = ..., left: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[LinkProblem, _Mapping]]] = ...) -> None: ...
