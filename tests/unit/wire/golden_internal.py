"""Every internal command beside its payload (hex), which follows from docs/formats/internal-commands.md."""

from sarit.wire import commands as w

INTERNAL: list[tuple[w.Command, str]] = [
    (w.Introduce(request_id=7, secret=b"\xaa\xbb"), "000000000000000700000002aabb"),
    (w.Introduced(request_id=7), "0000000000000007"),
    (w.OutcomeUnknown(request_id=7, segment="a", message="m"), "000000000000000700016100016d"),
    (w.ConditionFailed(request_id=7, segment="a", message="m"), "000000000000000700016100016d"),
    (
        w.CreateFreshSegment(request_id=7, segment="a", target_rate=3, scale_type=1, rollover_size_bytes=64),
        "000000000000000700016100000003010000000000000040",
    ),
    (
        w.ChangeTable(
            request_id=7,
            segment="a",
            changes=(w.TableChange(b"k", 9, False, False, b"\xaa"), w.TableChange(b"l", -1, True, True, b"")),
        ),
        "000000000000000700016100000002000000016b0000000000000009000000000001aa000000016cffffffffffffffff010100000000",
    ),
    (
        w.ScanTable(request_id=7, segment="a", start=b"k", bounded=True, end=b"l", limit=3),
        "0000000000000007000161000000016b01000000016c00000003",
    ),
    (
        w.DeleteTable(request_id=7, segment="a", must_be_empty=True, unchanged_since=64),
        "0000000000000007000161010000000000000040",
    ),
    (w.ReadBytes(request_id=7, segment="a", offset=64, limit=3), "0000000000000007000161000000000000004000000003"),
    (w.BytesRead(request_id=7, data=b"\xaa\xbb"), "000000000000000700000002aabb"),
    (
        w.AppendAt(request_id=7, segment="a", expected_offset=64, data=b"\xaa\xbb"),
        "0000000000000007000161000000000000004000000002aabb",
    ),
    (w.AppendedAt(request_id=7), "0000000000000007"),
    (w.GetRates(request_id=7, segments=("a", "b")), "000000000000000700000002000161000162"),
    (
        w.RatesMeasured(request_id=7, rates=(w.SegmentRates(1.0, 2.0, 0.5, 0.0, 1.0, 2.0, 0.5, 0.0, 9.0),)),
        "0000000000000007000000013ff000000000000040000000000000003fe000000000000000000000000000003ff000000000000040000000000000003fe000000000000000000000000000004022000000000000",
    ),
    (w.GetGrown(request_id=7), "0000000000000007"),
    (w.SegmentsGrown(request_id=7, segments=("a",), more=True), "00000000000000070000000100016101"),
    (w.AwaitScaleRequests(request_id=7), "0000000000000007"),
    (w.ScaleRequests(request_id=7, requests=(w.ScaleRequest("a", 2),)), "00000000000000070000000100016102"),
    (w.UseQuotas(request_id=7, stores=2, quotas=("a",)), "00000000000000070000000200000001000161"),
    (w.QuotasUsed(request_id=7), "0000000000000007"),
    (w.SegmentsCreated(request_id=7), "0000000000000007"),
    (w.CreateFreshSegments(request_id=7, segments=("a", "b")), "000000000000000700000002000161000162"),
    (w.BackupStep(request_id=7, step='{"hold": true}'), "0000000000000007000e" + b'{"hold": true}'.hex()),
    (w.MeasureScope(request_id=7, scope="s"), "0000000000000007000173"),
    (w.ScopeMeasured(request_id=7, bytes=5, containers=2), "0000000000000007000000000000000500000002"),
    (
        w.ChangeTableAt(request_id=7, segment="a", position=64, changes=(w.TableChange(b"k", -1, False, False, b"v"),)),
        "0000000000000007000161000000000000004000000001000000016bffffffffffffffff00000000000176",
    ),
    (w.TableChangedAt(request_id=7, position=64), "00000000000000070000000000000040"),
    (
        w.FollowTable(request_id=7, segment="a", position=64, limit=3),
        "0000000000000007000161000000000000004000000003",
    ),
    (
        w.TableFollowed(request_id=7, lost=False, position=64, changes=(w.TableChange(b"k", -1, False, True, b""),)),
        "000000000000000700000000000000004000000001000000016bffffffffffffffff000100000000",
    ),
    (w.BackupStepDone(request_id=7, answer='{"held": true}'), "0000000000000007000e" + b'{"held": true}'.hex()),
    (
        w.CreateSegmentAt(
            request_id=7,
            segment="a",
            offset=64,
            mirror=True,
            table=False,
            key_length=2,
            target_rate=3,
            scale_type=1,
            rollover_size_bytes=64,
        ),
        "000000000000000700016100000000000000400100000000020000000301" + "0000000000000040",
    ),
    (
        w.MergeAt(request_id=7, segment="a", source="b", expected_offset=64),
        "00000000000000070001610001620000000000000040",
    ),
    (w.MergedAt(request_id=7, merged=True, length=64), "0000000000000007010000000000000040"),
    (
        w.AppendBatch(request_id=7, begin_events=True, writes=(w.OffsetWrite("a", 64, b"\xaa\xbb"),)),
        "00000000000000070100000001000161000000000000004000000002aabb",
    ),
    (
        w.ReadBatch(request_id=7, ranges=(w.SegmentRange("a", 64, 3),)),
        "000000000000000700000001000161000000000000004000000003",
    ),
    (
        w.BatchDone(request_id=7, outcomes=(w.BatchOutcome(1, 64, b"\xaa", "m"),)),
        "0000000000000007000000010100000000000000400000000" + "1aa00016d",
    ),
    (w.GetStates(request_id=7, segments=("a", "b")), "000000000000000700000002000161000162"),
    (
        w.StatesRead(request_id=7, states=(w.SegmentState(True, 64, 3, False, 9),)),
        "00000000000000070000000101000000000000004000000000000000030000000000000000" + "09",
    ),
    (w.SetMirror(request_id=7, segment="a", mirror=True), "000000000000000700016101"),
]
