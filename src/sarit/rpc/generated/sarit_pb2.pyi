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
    __slots__ = ("properties",)
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

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
