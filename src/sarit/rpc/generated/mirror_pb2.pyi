from sarit.rpc.generated import controller_pb2 as _controller_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MirrorLink(_message.Message):
    __slots__ = ("linkId", "name", "installation")
    LINKID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    linkId: bytes
    name: str
    installation: str
    def __init__(self, linkId: _Optional[bytes] = ..., name: _Optional[str] = ..., installation: _Optional[str] = ...) -> None: ...

class MirrorCut(_message.Message):
    __slots__ = ("segments", "offsets")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class MirrorEpoch(_message.Message):
    __slots__ = ("number", "createdMs", "segments", "low", "high")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CREATEDMS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    number: int
    createdMs: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, number: _Optional[int] = ..., createdMs: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ...) -> None: ...

class MirrorLineage(_message.Message):
    __slots__ = ("lineageId", "epoch", "installation", "ends")
    LINEAGEID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    lineageId: bytes
    epoch: int
    installation: str
    ends: MirrorCut
    def __init__(self, lineageId: _Optional[bytes] = ..., epoch: _Optional[int] = ..., installation: _Optional[str] = ..., ends: _Optional[_Union[MirrorCut, _Mapping]] = ...) -> None: ...

class MirrorFacts(_message.Message):
    __slots__ = ("stream", "creationId", "firstNumber", "createdMs", "version", "config", "properties", "sealed", "fenced", "head", "first", "path", "lineages")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CREATIONID_FIELD_NUMBER: _ClassVar[int]
    FIRSTNUMBER_FIELD_NUMBER: _ClassVar[int]
    CREATEDMS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LINEAGES_FIELD_NUMBER: _ClassVar[int]
    stream: str
    creationId: bytes
    firstNumber: int
    createdMs: int
    version: int
    config: _controller_pb2.StreamConfig
    properties: _containers.ScalarMap[str, str]
    sealed: bool
    fenced: bool
    head: MirrorCut
    first: MirrorEpoch
    path: _containers.RepeatedScalarFieldContainer[str]
    lineages: _containers.RepeatedCompositeFieldContainer[MirrorLineage]
    def __init__(self, stream: _Optional[str] = ..., creationId: _Optional[bytes] = ..., firstNumber: _Optional[int] = ..., createdMs: _Optional[int] = ..., version: _Optional[int] = ..., config: _Optional[_Union[_controller_pb2.StreamConfig, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ..., sealed: _Optional[bool] = ..., fenced: _Optional[bool] = ..., head: _Optional[_Union[MirrorCut, _Mapping]] = ..., first: _Optional[_Union[MirrorEpoch, _Mapping]] = ..., path: _Optional[_Iterable[str]] = ..., lineages: _Optional[_Iterable[_Union[MirrorLineage, _Mapping]]] = ...) -> None: ...

class MirrorPosition(_message.Message):
    __slots__ = ("stream", "epoch", "lengths")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    epoch: int
    lengths: MirrorCut
    def __init__(self, stream: _Optional[str] = ..., epoch: _Optional[int] = ..., lengths: _Optional[_Union[MirrorCut, _Mapping]] = ...) -> None: ...

class MirrorOffer(_message.Message):
    __slots__ = ("stream", "lengths", "sealed", "starts", "epochs", "more", "version", "behind", "oldestMs")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    OLDESTMS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    lengths: MirrorCut
    sealed: _containers.RepeatedScalarFieldContainer[int]
    starts: MirrorCut
    epochs: _containers.RepeatedCompositeFieldContainer[MirrorEpoch]
    more: bool
    version: int
    behind: int
    oldestMs: int
    def __init__(self, stream: _Optional[str] = ..., lengths: _Optional[_Union[MirrorCut, _Mapping]] = ..., sealed: _Optional[_Iterable[int]] = ..., starts: _Optional[_Union[MirrorCut, _Mapping]] = ..., epochs: _Optional[_Iterable[_Union[MirrorEpoch, _Mapping]]] = ..., more: _Optional[bool] = ..., version: _Optional[int] = ..., behind: _Optional[int] = ..., oldestMs: _Optional[int] = ...) -> None: ...

class MirrorRange(_message.Message):
    __slots__ = ("stream", "segment", "offset", "length")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    stream: str
    segment: int
    offset: int
    length: int
    def __init__(self, stream: _Optional[str] = ..., segment: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class MirrorBytes(_message.Message):
    __slots__ = ("data", "length", "zstd")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ZSTD_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    length: int
    zstd: bool
    def __init__(self, data: _Optional[bytes] = ..., length: _Optional[int] = ..., zstd: _Optional[bool] = ...) -> None: ...

class MirrorWrite(_message.Message):
    __slots__ = ("stream", "segment", "offset", "length", "staged")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    stream: str
    segment: int
    offset: int
    length: int
    staged: bool
    def __init__(self, stream: _Optional[str] = ..., segment: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., staged: _Optional[bool] = ...) -> None: ...

class MirrorWritten(_message.Message):
    __slots__ = ("end", "refused", "reason")
    END_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    end: int
    refused: bool
    reason: str
    def __init__(self, end: _Optional[int] = ..., refused: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class MirrorRound(_message.Message):
    __slots__ = ("stream", "before", "after", "sealed", "epochs", "ends", "head")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    stream: str
    before: MirrorCut
    after: MirrorCut
    sealed: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedCompositeFieldContainer[MirrorEpoch]
    ends: bool
    head: MirrorCut
    def __init__(self, stream: _Optional[str] = ..., before: _Optional[_Union[MirrorCut, _Mapping]] = ..., after: _Optional[_Union[MirrorCut, _Mapping]] = ..., sealed: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[_Union[MirrorEpoch, _Mapping]]] = ..., ends: _Optional[bool] = ..., head: _Optional[_Union[MirrorCut, _Mapping]] = ...) -> None: ...

class MirrorState(_message.Message):
    __slots__ = ("stream", "status", "position", "staged", "reason", "lineage", "version", "head")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    stream: str
    status: int
    position: MirrorPosition
    staged: MirrorCut
    reason: str
    lineage: MirrorLineage
    version: int
    head: MirrorCut
    def __init__(self, stream: _Optional[str] = ..., status: _Optional[int] = ..., position: _Optional[_Union[MirrorPosition, _Mapping]] = ..., staged: _Optional[_Union[MirrorCut, _Mapping]] = ..., reason: _Optional[str] = ..., lineage: _Optional[_Union[MirrorLineage, _Mapping]] = ..., version: _Optional[int] = ..., head: _Optional[_Union[MirrorCut, _Mapping]] = ...) -> None: ...

class MirrorSiteRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MirrorSiteResponse(_message.Message):
    __slots__ = ("installation", "protocol", "wallMs", "compresses")
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    WALLMS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSES_FIELD_NUMBER: _ClassVar[int]
    installation: str
    protocol: int
    wallMs: int
    compresses: bool
    def __init__(self, installation: _Optional[str] = ..., protocol: _Optional[int] = ..., wallMs: _Optional[int] = ..., compresses: _Optional[bool] = ...) -> None: ...

class MirrorScopesRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: str
    def __init__(self, after: _Optional[str] = ...) -> None: ...

class MirrorScopesResponse(_message.Message):
    __slots__ = ("scopes",)
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, scopes: _Optional[_Iterable[str]] = ...) -> None: ...

class MirrorStreamsRequest(_message.Message):
    __slots__ = ("scope", "after")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    scope: str
    after: str
    def __init__(self, scope: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class MirrorFactsRequest(_message.Message):
    __slots__ = ("scope", "streams", "startMs")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    STARTMS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    streams: _containers.RepeatedScalarFieldContainer[str]
    startMs: int
    def __init__(self, scope: _Optional[str] = ..., streams: _Optional[_Iterable[str]] = ..., startMs: _Optional[int] = ...) -> None: ...

class MirrorFactsResponse(_message.Message):
    __slots__ = ("streams",)
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[MirrorFacts]
    def __init__(self, streams: _Optional[_Iterable[_Union[MirrorFacts, _Mapping]]] = ...) -> None: ...

class MirrorOffersRequest(_message.Message):
    __slots__ = ("scope", "positions", "limit")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    positions: _containers.RepeatedCompositeFieldContainer[MirrorPosition]
    limit: int
    def __init__(self, scope: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[MirrorPosition, _Mapping]]] = ..., limit: _Optional[int] = ...) -> None: ...

class MirrorOffersResponse(_message.Message):
    __slots__ = ("offers",)
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    offers: _containers.RepeatedCompositeFieldContainer[MirrorOffer]
    def __init__(self, offers: _Optional[_Iterable[_Union[MirrorOffer, _Mapping]]] = ...) -> None: ...

class MirrorReadRequest(_message.Message):
    __slots__ = ("scope", "ranges", "zstd")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ZSTD_FIELD_NUMBER: _ClassVar[int]
    scope: str
    ranges: _containers.RepeatedCompositeFieldContainer[MirrorRange]
    zstd: bool
    def __init__(self, scope: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[MirrorRange, _Mapping]]] = ..., zstd: _Optional[bool] = ...) -> None: ...

class MirrorReadResponse(_message.Message):
    __slots__ = ("data", "lengths", "truncated", "startOffset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STARTOFFSET_FIELD_NUMBER: _ClassVar[int]
    data: MirrorBytes
    lengths: _containers.RepeatedScalarFieldContainer[int]
    truncated: bool
    startOffset: int
    def __init__(self, data: _Optional[_Union[MirrorBytes, _Mapping]] = ..., lengths: _Optional[_Iterable[int]] = ..., truncated: _Optional[bool] = ..., startOffset: _Optional[int] = ...) -> None: ...

class MirrorGrownRequest(_message.Message):
    __slots__ = ("scope", "link", "waitSeconds", "after")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    WAITSECONDS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    waitSeconds: float
    after: int
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., waitSeconds: _Optional[float] = ..., after: _Optional[int] = ...) -> None: ...

class MirrorGrownResponse(_message.Message):
    __slots__ = ("streams", "any", "number")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedScalarFieldContainer[str]
    any: bool
    number: int
    def __init__(self, streams: _Optional[_Iterable[str]] = ..., any: _Optional[bool] = ..., number: _Optional[int] = ...) -> None: ...

class MirrorHeld(_message.Message):
    __slots__ = ("stream", "cut")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    stream: str
    cut: MirrorCut
    def __init__(self, stream: _Optional[str] = ..., cut: _Optional[_Union[MirrorCut, _Mapping]] = ...) -> None: ...

class MirrorHoldRequest(_message.Message):
    __slots__ = ("scope", "link", "cuts")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    cuts: _containers.RepeatedCompositeFieldContainer[MirrorHeld]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., cuts: _Optional[_Iterable[_Union[MirrorHeld, _Mapping]]] = ...) -> None: ...

class MirrorFenceRequest(_message.Message):
    __slots__ = ("scope", "link", "streams", "lineage")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    streams: _containers.RepeatedScalarFieldContainer[str]
    lineage: bytes
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., streams: _Optional[_Iterable[str]] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class MirrorDone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MirrorBeginRequest(_message.Message):
    __slots__ = ("scope", "link", "streams", "discardDivergent")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    DISCARDDIVERGENT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    streams: _containers.RepeatedCompositeFieldContainer[MirrorFacts]
    discardDivergent: bool
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., streams: _Optional[_Iterable[_Union[MirrorFacts, _Mapping]]] = ..., discardDivergent: _Optional[bool] = ...) -> None: ...

class MirrorNamesRequest(_message.Message):
    __slots__ = ("scope", "link", "streams")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    streams: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., streams: _Optional[_Iterable[str]] = ...) -> None: ...

class MirrorStatesResponse(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[MirrorState]
    def __init__(self, states: _Optional[_Iterable[_Union[MirrorState, _Mapping]]] = ...) -> None: ...

class MirrorWriteRequest(_message.Message):
    __slots__ = ("scope", "link", "writes", "data")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    writes: _containers.RepeatedCompositeFieldContainer[MirrorWrite]
    data: MirrorBytes
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[MirrorWrite, _Mapping]]] = ..., data: _Optional[_Union[MirrorBytes, _Mapping]] = ...) -> None: ...

class MirrorWriteResponse(_message.Message):
    __slots__ = ("written",)
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    written: _containers.RepeatedCompositeFieldContainer[MirrorWritten]
    def __init__(self, written: _Optional[_Iterable[_Union[MirrorWritten, _Mapping]]] = ...) -> None: ...

class MirrorFinishRequest(_message.Message):
    __slots__ = ("scope", "link", "rounds")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    rounds: _containers.RepeatedCompositeFieldContainer[MirrorRound]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., rounds: _Optional[_Iterable[_Union[MirrorRound, _Mapping]]] = ...) -> None: ...

class MirrorStaged(_message.Message):
    __slots__ = ("stream", "segment")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    stream: str
    segment: int
    def __init__(self, stream: _Optional[str] = ..., segment: _Optional[int] = ...) -> None: ...

class MirrorDropRequest(_message.Message):
    __slots__ = ("scope", "link", "segments")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    segments: _containers.RepeatedCompositeFieldContainer[MirrorStaged]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[MirrorStaged, _Mapping]]] = ...) -> None: ...

class MirrorRestartRequest(_message.Message):
    __slots__ = ("scope", "link", "stream")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    stream: MirrorFacts
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., stream: _Optional[_Union[MirrorFacts, _Mapping]] = ...) -> None: ...

class MirrorTableFacts(_message.Message):
    __slots__ = ("table", "creationId", "createdMs", "partitions", "primaryKeyLength", "secondaryKeyLength", "rolloverBytes", "positions", "path")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CREATIONID_FIELD_NUMBER: _ClassVar[int]
    CREATEDMS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PRIMARYKEYLENGTH_FIELD_NUMBER: _ClassVar[int]
    SECONDARYKEYLENGTH_FIELD_NUMBER: _ClassVar[int]
    ROLLOVERBYTES_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    table: str
    creationId: bytes
    createdMs: int
    partitions: int
    primaryKeyLength: int
    secondaryKeyLength: int
    rolloverBytes: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    path: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., creationId: _Optional[bytes] = ..., createdMs: _Optional[int] = ..., partitions: _Optional[int] = ..., primaryKeyLength: _Optional[int] = ..., secondaryKeyLength: _Optional[int] = ..., rolloverBytes: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ..., path: _Optional[_Iterable[str]] = ...) -> None: ...

class MirrorPartition(_message.Message):
    __slots__ = ("source", "position", "comparison")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    source: int
    position: int
    comparison: int
    def __init__(self, source: _Optional[int] = ..., position: _Optional[int] = ..., comparison: _Optional[int] = ...) -> None: ...

class MirrorTableState(_message.Message):
    __slots__ = ("table", "status", "partitions", "reason")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    table: str
    status: int
    partitions: _containers.RepeatedCompositeFieldContainer[MirrorPartition]
    reason: str
    def __init__(self, table: _Optional[str] = ..., status: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[MirrorPartition, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class MirrorRow(_message.Message):
    __slots__ = ("key", "value", "removed")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    removed: bool
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., removed: _Optional[bool] = ...) -> None: ...

class MirrorTableChanges(_message.Message):
    __slots__ = ("table", "partition", "since", "until", "rows", "low", "high", "lost")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    table: str
    partition: int
    since: int
    until: int
    rows: _containers.RepeatedCompositeFieldContainer[MirrorRow]
    low: bytes
    high: bytes
    lost: bool
    def __init__(self, table: _Optional[str] = ..., partition: _Optional[int] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[MirrorRow, _Mapping]]] = ..., low: _Optional[bytes] = ..., high: _Optional[bytes] = ..., lost: _Optional[bool] = ...) -> None: ...

class MirrorStreamCuts(_message.Message):
    __slots__ = ("stream", "cuts")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    cuts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, stream: _Optional[str] = ..., cuts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class MirrorGroup(_message.Message):
    __slots__ = ("group", "record")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    group: str
    record: bytes
    def __init__(self, group: _Optional[str] = ..., record: _Optional[bytes] = ...) -> None: ...

class MirrorPageRequest(_message.Message):
    __slots__ = ("scope", "after")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    scope: str
    after: str
    def __init__(self, scope: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class MirrorTablesResponse(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[MirrorTableFacts]
    def __init__(self, tables: _Optional[_Iterable[_Union[MirrorTableFacts, _Mapping]]] = ...) -> None: ...

class MirrorTableChangesRequest(_message.Message):
    __slots__ = ("scope", "table", "creationId", "partition", "since", "start", "end")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CREATIONID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    scope: str
    table: str
    creationId: bytes
    partition: int
    since: int
    start: bytes
    end: bytes
    def __init__(self, scope: _Optional[str] = ..., table: _Optional[str] = ..., creationId: _Optional[bytes] = ..., partition: _Optional[int] = ..., since: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ...) -> None: ...

class MirrorCutsRequest(_message.Message):
    __slots__ = ("scope", "after")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    scope: str
    after: _containers.RepeatedCompositeFieldContainer[MirrorAfter]
    def __init__(self, scope: _Optional[str] = ..., after: _Optional[_Iterable[_Union[MirrorAfter, _Mapping]]] = ...) -> None: ...

class MirrorAfter(_message.Message):
    __slots__ = ("stream", "timeMs")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TIMEMS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    timeMs: int
    def __init__(self, stream: _Optional[str] = ..., timeMs: _Optional[int] = ...) -> None: ...

class MirrorCutsResponse(_message.Message):
    __slots__ = ("cuts",)
    CUTS_FIELD_NUMBER: _ClassVar[int]
    cuts: _containers.RepeatedCompositeFieldContainer[MirrorStreamCuts]
    def __init__(self, cuts: _Optional[_Iterable[_Union[MirrorStreamCuts, _Mapping]]] = ...) -> None: ...

class MirrorGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[MirrorGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[MirrorGroup, _Mapping]]] = ...) -> None: ...

class MirrorBeginTablesRequest(_message.Message):
    __slots__ = ("scope", "link", "tables")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    tables: _containers.RepeatedCompositeFieldContainer[MirrorTableFacts]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[MirrorTableFacts, _Mapping]]] = ...) -> None: ...

class MirrorTableStatesResponse(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[MirrorTableState]
    def __init__(self, states: _Optional[_Iterable[_Union[MirrorTableState, _Mapping]]] = ...) -> None: ...

class MirrorCompareTableRequest(_message.Message):
    __slots__ = ("scope", "link", "table", "partition")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    table: str
    partition: int
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., table: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class MirrorWriteTableRequest(_message.Message):
    __slots__ = ("scope", "link", "changes", "state", "endsComparison")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDSCOMPARISON_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    changes: MirrorTableChanges
    state: MirrorPartition
    endsComparison: bool
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., changes: _Optional[_Union[MirrorTableChanges, _Mapping]] = ..., state: _Optional[_Union[MirrorPartition, _Mapping]] = ..., endsComparison: _Optional[bool] = ...) -> None: ...

class MirrorCutTimesResponse(_message.Message):
    __slots__ = ("timesMs",)
    TIMESMS_FIELD_NUMBER: _ClassVar[int]
    timesMs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, timesMs: _Optional[_Iterable[int]] = ...) -> None: ...

class MirrorAddCutsRequest(_message.Message):
    __slots__ = ("scope", "link", "cuts")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    cuts: _containers.RepeatedCompositeFieldContainer[MirrorStreamCuts]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., cuts: _Optional[_Iterable[_Union[MirrorStreamCuts, _Mapping]]] = ...) -> None: ...

class MirrorPutGroupsRequest(_message.Message):
    __slots__ = ("scope", "link", "groups")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    groups: _containers.RepeatedCompositeFieldContainer[MirrorGroup]
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[MirrorGroup, _Mapping]]] = ...) -> None: ...

class MirrorPutGroupsResponse(_message.Message):
    __slots__ = ("reasons",)
    REASONS_FIELD_NUMBER: _ClassVar[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class MirrorPromoteAttachedRequest(_message.Message):
    __slots__ = ("scope", "link")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    scope: str
    link: MirrorLink
    def __init__(self, scope: _Optional[str] = ..., link: _Optional[_Union[MirrorLink, _Mapping]] = ...) -> None: ...
