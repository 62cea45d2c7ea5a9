from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

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
