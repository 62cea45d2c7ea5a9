"""Calls of the controller's API that are wrong, and the status each must get (controller.md); see test_refusals.py.

There are the streams `s/t`, two segments truncated at 100, and `s/sealed`; and the table `s/k`.
"""

from __future__ import annotations

from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.status import Status

STREAM = pb.StreamInfo(scope="s", stream="t")
SEALED = pb.StreamInfo(scope="s", stream="sealed")
NONE = pb.StreamInfo(scope="s", stream="none")
NOWHERE = pb.StreamInfo(scope="nowhere", stream="t")
LEASE = 30_000
DEEP = 1 << 60
BAD_NAMES = ("", "no_name", "a/b", "sp ace", "ünï", "x" * 256, "a\0b", "_", "__x")


def config(name="t", scope="s", segments=2, **scaling):
    return pb.StreamConfig(
        streamInfo=pb.StreamInfo(scope=scope, stream=name),
        scalingPolicy=pb.ScalingPolicy(minNumSegments=segments, **scaling),
    )


def cut(offsets, stream=STREAM):
    return pb.StreamCut(streamInfo=stream, cut=offsets)


def scale(seals, ranges, stream=STREAM):
    entries = [pb.ScaleRequest.KeyRangeEntry(start=start, end=end) for start, end in ranges]
    return pb.ScaleRequest(streamInfo=stream, sealedSegments=seals, newKeyRanges=entries)


def txn(high=1, low=2, stream=STREAM):
    return pb.TxnRequest(streamInfo=stream, txnId=pb.TxnId(highBits=high, lowBits=low))


def begin(lease, stream=STREAM):
    return pb.CreateTxnRequest(streamInfo=stream, lease=lease)


def ping(lease=LEASE, stream=STREAM):
    return pb.PingTxnRequest(streamInfo=stream, txnId=pb.TxnId(highBits=1, lowBits=2), lease=lease)


def group(name="g", scope="s", **fields):
    return pb.ReaderGroupConfiguration(scope=scope, readerGroupName=name, **fields)


def table(name="k", scope="s", partitions=2, primary=4, secondary=0):
    return pb.KeyValueTableConfig(
        scope=scope, kvtName=name, partitionCount=partitions, primaryKeyLength=primary, secondaryKeyLength=secondary
    )


def note(offsets, time=1, stream=STREAM):
    return pb.TimestampFromWriter(writer="w", position=cut(offsets, stream), timestamp=time)


def subscriber(name="s/none", offsets=None, stream=STREAM):
    return pb.SubscriberStreamCut(subscriber=name, streamCut=cut(offsets or {0: 0, 1: 0}, stream))


# (rpc, request, expected: a gRPC status, or the value of the reply's own status)
CALLS = [
    *[("createScope", pb.ScopeInfo(scope=name), pb.CreateScopeStatus.INVALID_SCOPE_NAME) for name in BAD_NAMES],
    ("createScope", pb.ScopeInfo(scope="s"), pb.CreateScopeStatus.SCOPE_EXISTS),
    ("deleteScope", pb.ScopeInfo(scope="nowhere"), pb.DeleteScopeStatus.SCOPE_NOT_FOUND),
    ("deleteScope", pb.ScopeInfo(scope="s"), pb.DeleteScopeStatus.SCOPE_NOT_EMPTY),
    ("deleteScopeRecursive", pb.ScopeInfo(scope="nowhere"), pb.DeleteScopeStatus.SUCCESS),  # as Pravega answers
    (
        "listStreamsInScope",
        pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope="nowhere")),
        pb.StreamsInScopeResponse.SCOPE_NOT_FOUND,
    ),
    (
        "listStreamsInScopeForTag",
        pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope="nowhere"), tag="x"),
        pb.StreamsInScopeResponse.SCOPE_NOT_FOUND,
    ),
    (
        "listKeyValueTablesInScope",
        pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope="nowhere")),
        pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND,
    ),
    *[("createStream", config(name), pb.CreateStreamStatus.INVALID_STREAM_NAME) for name in BAD_NAMES],
    ("createStream", config(segments=7), pb.CreateStreamStatus.STREAM_EXISTS),
    ("createStream", config(scope="nowhere"), pb.CreateStreamStatus.SCOPE_NOT_FOUND),
    ("createStream", config("new", scaleType=9), Status.INVALID_ARGUMENT),
    ("createStream", config("new", segments=1 << 30), Status.INVALID_ARGUMENT),
    ("createStream", config("new", scaleType=1, targetRate=-5, scaleFactor=2), Status.INVALID_ARGUMENT),
    ("updateStream", config("none"), pb.UpdateStreamStatus.STREAM_NOT_FOUND),
    ("updateStream", config(scope="nowhere"), pb.UpdateStreamStatus.SCOPE_NOT_FOUND),
    ("updateStream", config("sealed"), pb.UpdateStreamStatus.STREAM_SEALED),
    ("updateStream", config(segments=1 << 30), Status.INVALID_ARGUMENT),
    ("truncateStream", cut({0: 200}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({0: 200, 1: 200, 9: 0}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({0: 200, 1: -1}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({0: 200, 1: DEEP}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({0: 50, 1: 200}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({0: 200, -1: 200}), pb.UpdateStreamStatus.FAILURE),
    ("truncateStream", cut({0: 0, 1: 0}, SEALED), pb.UpdateStreamStatus.STREAM_SEALED),
    ("truncateStream", cut({0: 0, 1: 0}, NONE), pb.UpdateStreamStatus.STREAM_NOT_FOUND),
    ("truncateStream", cut({0: 0, 1: 0}, NOWHERE), pb.UpdateStreamStatus.SCOPE_NOT_FOUND),
    ("sealStream", NONE, pb.UpdateStreamStatus.STREAM_NOT_FOUND),
    ("sealStream", NOWHERE, pb.UpdateStreamStatus.SCOPE_NOT_FOUND),
    ("deleteStream", STREAM, pb.DeleteStreamStatus.STREAM_NOT_SEALED),
    ("deleteStream", NONE, pb.DeleteStreamStatus.STREAM_NOT_FOUND),
    *[(rpc, NONE, Status.NOT_FOUND) for rpc in ("getStreamConfiguration", "getCurrentSegments")],
    ("getSegments", pb.GetSegmentsRequest(streamInfo=NONE), Status.NOT_FOUND),
    ("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=STREAM, epoch=5), Status.NOT_FOUND),
    ("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=STREAM, epoch=-1), Status.NOT_FOUND),
    ("getSegmentsImmediatelyFollowing", pb.SegmentId(streamInfo=STREAM, segmentId=9), Status.NOT_FOUND),
    ("getSegmentsImmediatelyFollowing", pb.SegmentId(streamInfo=STREAM, segmentId=-9), Status.INVALID_ARGUMENT),
    ("getSegmentsBetween", pb.StreamCutRange(streamInfo=STREAM), Status.INVALID_ARGUMENT),
    ("getURI", pb.SegmentId(streamInfo=STREAM, segmentId=-1), Status.INVALID_ARGUMENT),
    *[
        ("scale", scale(*wrong), pb.ScaleResponse.FAILURE)
        for wrong in (
            ([0], [(0.0, 0.4)]),
            ([0], [(0.0, 0.3), (0.2, 0.5)]),
            ([0], [(0.5, 0.0)]),
            ([0], [(float("nan"), 0.5)]),
            ([0], [(-1.0, 0.5)]),
            ([0], []),
            ([0, 1], [(0.0, float("inf"))]),
            ([0], [(0.0, 0.5)], SEALED),
        )
    ],
    *[
        ("scale", scale(*wrong), pb.ScaleResponse.PRECONDITION_FAILED)
        for wrong in (
            ([], [(0.0, 0.5)]),
            ([9], [(0.0, 0.5)]),
            ([-1], [(0.0, 0.5)]),
            ([0, 0], [(0.0, 0.5)]),
            ([0, 1], [(0.0, 1.0)]),
        )
    ],
    ("scale", scale([0], [(0.0, 0.5)], NONE), pb.ScaleResponse.FAILURE),  # as Pravega answers, here and below
    ("checkScale", pb.ScaleStatusRequest(streamInfo=STREAM, epoch=3), pb.ScaleStatusResponse.INVALID_INPUT),
    ("checkScale", pb.ScaleStatusRequest(streamInfo=STREAM, epoch=-3), pb.ScaleStatusResponse.INVALID_INPUT),
    ("checkScale", pb.ScaleStatusRequest(streamInfo=NONE), pb.ScaleStatusResponse.INVALID_INPUT),
    *[("createTransaction", begin(lease), Status.INVALID_ARGUMENT) for lease in (0, -1, 9_999, 600_001, DEEP)],
    ("createTransaction", begin(LEASE, SEALED), Status.INVALID_ARGUMENT),
    ("createTransaction", begin(LEASE, NONE), Status.NOT_FOUND),
    ("pingTransaction", ping(), pb.PingTxnStatus.UNKNOWN),
    ("pingTransaction", ping(stream=NONE), Status.NOT_FOUND),
    *[(f"{verb}Transaction", txn(), pb.TxnStatus.TRANSACTION_NOT_FOUND) for verb in ("commit", "abort")],
    *[(f"{verb}Transaction", txn(stream=NONE), pb.TxnStatus.STREAM_NOT_FOUND) for verb in ("commit", "abort")],
    ("commitTransaction", txn(-1, -1), pb.TxnStatus.TRANSACTION_NOT_FOUND),
    ("checkTransactionState", txn(), pb.TxnState.UNKNOWN),
    ("listCompletedTransactions", pb.ListCompletedTxnRequest(streamInfo=NONE), Status.NOT_FOUND),
    *[
        ("noteTimestampFromWriter", note(offsets), pb.TimestampResponse.INVALID_POSITION)
        for offsets in ({77: 4}, {0: -1}, {-1: 0})
    ],
    ("noteTimestampFromWriter", note({0: 1}, stream=NONE), Status.NOT_FOUND),
    (
        "removeWriter",
        pb.RemoveWriterRequest(writer="w", stream=NONE),
        pb.RemoveWriterResponse.STREAM_DOES_NOT_EXIST,
    ),
    (
        "removeWriter",
        pb.RemoveWriterRequest(writer="nobody", stream=STREAM),
        pb.RemoveWriterResponse.UNKNOWN_WRITER,
    ),
    ("createReaderGroup", group(scope="nowhere"), pb.CreateReaderGroupResponse.SCOPE_NOT_FOUND),
    *[("createReaderGroup", group(name), pb.CreateReaderGroupResponse.INVALID_RG_NAME) for name in BAD_NAMES],
    (
        "getReaderGroupConfig",
        pb.ReaderGroupInfo(scope="s", readerGroup="none"),
        pb.ReaderGroupConfigResponse.RG_NOT_FOUND,
    ),
    ("updateReaderGroup", group("none"), pb.UpdateReaderGroupResponse.RG_NOT_FOUND),
    ("deleteReaderGroup", pb.ReaderGroupInfo(scope="s", readerGroup="none"), pb.DeleteReaderGroupStatus.RG_NOT_FOUND),
    ("listSubscribers", NONE, pb.SubscribersResponse.STREAM_NOT_FOUND),
    ("updateSubscriberStreamCut", subscriber(), pb.UpdateSubscriberStatus.SUBSCRIBER_NOT_FOUND),
    ("updateSubscriberStreamCut", subscriber(stream=NONE), pb.UpdateSubscriberStatus.STREAM_NOT_FOUND),
    *[("createKeyValueTable", table(name), pb.CreateKeyValueTableStatus.INVALID_TABLE_NAME) for name in BAD_NAMES],
    ("createKeyValueTable", table(), pb.CreateKeyValueTableStatus.TABLE_EXISTS),
    ("createKeyValueTable", table(scope="nowhere"), pb.CreateKeyValueTableStatus.SCOPE_NOT_FOUND),
    *[
        ("createKeyValueTable", table("new", **wrong), pb.CreateKeyValueTableStatus.INVALID_TABLE_NAME)
        for wrong in (
            {"partitions": 0},
            {"partitions": -1},
            {"partitions": 1 << 30},
            {"primary": 0},
            {"primary": 9000},
            {"secondary": -1},
        )
    ],
    ("getCurrentSegmentsKeyValueTable", pb.KeyValueTableInfo(scope="s", kvtName="none"), Status.NOT_FOUND),
    (
        "getKeyValueTableConfiguration",
        pb.KeyValueTableInfo(scope="s", kvtName="none"),
        pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND,
    ),
    ("deleteKeyValueTable", pb.KeyValueTableInfo(scope="s", kvtName="none"), pb.DeleteKVTableStatus.TABLE_NOT_FOUND),
]
