"""Every command of vectors.md beside the payload that the Java client 0.13.0 makes of it (hex).

`w.Event` is apart: Java's writer of its fields adds the header that our frame has anyway.  41 and 42 are not in
0.13.0; their bytes follow from the field table of wire.md.
"""

from sarit.wire import commands as w

WRITER = bytes.fromhex("00000000000000010000000000000002")
ATTRIBUTE = bytes.fromhex("00000000000000030000000000000004")

GOLDEN: list[tuple[w.Command, str]] = [
    (w.Hello(high_version=3, low_version=3), "0000000300000003"),
    (w.StorageChunksListed(request_id=7, chunks=()), "000000000000000700000000"),
    (w.ListStorageChunks(segment="a", token="T", request_id=7), "0001610001540000000000000007"),
    (w.StorageFlushed(request_id=7), "0000000000000007"),
    (w.FlushToStorage(container_id=3, token="T", request_id=7), "000000030001540000000000000007"),
    (w.PartialEvent(data=b"\xaa\xbb"), "aabb"),
    (w.Padding(data=b"\x00\x00\x00"), "000000"),
    (
        w.SetupAppend(request_id=7, writer_id=WRITER, segment="a", token="T"),
        "000000000000000700000000000000010000000000000002000161000154",
    ),
    (
        w.AppendSetup(request_id=7, segment="a", writer_id=WRITER, last_event_number=9),
        "0000000000000007000161000000000000000100000000000000020000000000000009",
    ),
    (w.AppendBlock(writer_id=WRITER, data=b""), "00000000000000010000000000000002"),
    (
        w.AppendBlockEnd(
            writer_id=WRITER, size_of_whole_events=3, data=b"\xaa\xbb", num_events=3, last_event_number=9, request_id=7
        ),
        "000000000000000100000000000000020000000300000002aabb0000000300000000000000090000000000000007",
    ),
    (
        w.ConditionalAppend(writer_id=WRITER, event_number=9, expected_offset=64, event=b"\xaa\xbb", request_id=7),
        "00000000000000010000000000000002000000000000000900000000000000400000000000000002aabb0000000000000007",
    ),
    (
        w.DataAppended(
            writer_id=WRITER, event_number=9, previous_event_number=9, request_id=7, segment_write_offset=64
        ),
        "000000000000000100000000000000020000000000000009000000000000000900000000000000070000000000000040",
    ),
    (
        w.ConditionalCheckFailed(writer_id=WRITER, event_number=9, request_id=7),
        "0000000000000001000000000000000200000000000000090000000000000007",
    ),
    (
        w.ReadSegment(segment="a", offset=64, suggested_length=3, token="T", request_id=7),
        "0001610000000000000040000000030001540000000000000007",
    ),
    (
        w.SegmentRead(segment="a", offset=64, at_tail=True, end_of_segment=True, data=b"\xaa\xbb", request_id=7),
        "0001610000000000000040010100000002aabb0000000000000007",
    ),
    (w.GetStreamSegmentInfo(request_id=7, segment="a", token="T"), "0000000000000007000161000154"),
    (
        w.StreamSegmentInfo(
            request_id=7,
            segment="a",
            exists=True,
            is_sealed=True,
            is_deleted=True,
            last_modified=9,
            write_offset=64,
            start_offset=64,
        ),
        "0000000000000007000161010101000000000000000900000000000000400000000000000040",
    ),
    (
        w.CreateSegment(request_id=7, segment="a", target_rate=3, scale_type=1, token="T", rollover_size_bytes=9),
        "000000000000000700016100000003010001540000000000000009",
    ),
    (w.SegmentCreated(request_id=7, segment="a"), "0000000000000007000161"),
    (w.SealSegment(request_id=7, segment="a", token="T"), "0000000000000007000161000154"),
    (w.SegmentSealed(request_id=7, segment="a"), "0000000000000007000161"),
    (w.DeleteSegment(request_id=7, segment="a", token="T"), "0000000000000007000161000154"),
    (w.SegmentDeleted(request_id=7, segment="a"), "0000000000000007000161"),
    (
        w.UpdateSegmentPolicy(request_id=7, segment="a", target_rate=3, scale_type=1, token="T"),
        "00000000000000070001610000000301000154",
    ),
    (w.SegmentPolicyUpdated(request_id=7, segment="a"), "0000000000000007000161"),
    (
        w.GetSegmentAttribute(request_id=7, segment="a", attribute_id=ATTRIBUTE, token="T"),
        "000000000000000700016100000000000000030000000000000004000154",
    ),
    (w.SegmentAttribute(request_id=7, value=9), "00000000000000070000000000000009"),
    (
        w.UpdateSegmentAttribute(
            request_id=7, segment="a", attribute_id=ATTRIBUTE, new_value=9, expected_value=9, token="T"
        ),
        "00000000000000070001610000000000000003000000000000000400000000000000090000000000000009000154",
    ),
    (w.SegmentAttributeUpdated(request_id=7, success=True), "000000000000000701"),
    (
        w.TruncateSegment(request_id=7, segment="a", truncation_offset=64, token="T"),
        "00000000000000070001610000000000000040000154",
    ),
    (w.SegmentTruncated(request_id=7, segment="a"), "0000000000000007000161"),
    (
        w.CreateTransientSegment(request_id=7, writer_id=WRITER, parent_segment="a", token="T"),
        "000000000000000700000000000000010000000000000002000161000154",
    ),
    (w.WrongHost(request_id=7, segment="a", correct_host="a", stack="E"), "0000000000000007000161000161000145"),
    (
        w.SegmentIsSealed(request_id=7, segment="a", stack="E", offset=64),
        "00000000000000070001610001450000000000000040",
    ),
    (w.SegmentAlreadyExists(request_id=7, segment="a", stack="E"), "0000000000000007000161000145"),
    (w.NoSuchSegment(request_id=7, segment="a", stack="E", offset=64), "00000000000000070001610001450000000000000040"),
    (
        w.InvalidEventNumber(writer_id=WRITER, request_id=7, stack="E", event_number=9),
        "0000000000000001000000000000000200000000000000070001450000000000000009",
    ),
    (
        w.SegmentIsTruncated(request_id=7, segment="a", start_offset=64, stack="E", offset=64),
        "000000000000000700016100000000000000400001450000000000000040",
    ),
    (w.OperationUnsupported(request_id=7, operation_name="a", stack="E"), "0000000000000007000161000145"),
    (
        w.MergeSegments(
            request_id=7,
            target="a",
            source="b",
            token="T",
            attribute_updates=(w.AttributeUpdate(attribute_id=ATTRIBUTE, update_type=1, new_value=9, old_value=8),),
        ),
        "000000000000000700016100016200015400000001000000000000000300000000000000040100000000000000090000000000000008",
    ),
    (
        w.SegmentsMerged(request_id=7, target="a", source="b", new_target_write_offset=64),
        "00000000000000070001610001620000000000000040",
    ),
    (w.AuthTokenCheckFailed(request_id=7, stack="E", error_code=1), "000000000000000700014500000001"),
    (w.ErrorMessage(request_id=7, segment="a", message="a", error_code=0), "000000000000000700016100016100000000"),
    (w.GetTableSegmentInfo(request_id=7, segment="a", token="T"), "0000000000000007000161000154"),
    (
        w.TableSegmentInfo(request_id=7, segment="a", start_offset=64, length=9, entry_count=9, key_length=3),
        "000000000000000700016100000000000000400000000000000009000000000000000900000003",
    ),
    (
        w.CreateTableSegment(
            request_id=7, segment="a", token="T", sorted_deprecated=True, key_length=3, rollover_size_bytes=9
        ),
        "000000000000000700016100015401000000030000000000000009",
    ),
    (w.DeleteTableSegment(request_id=7, segment="a", must_be_empty=True, token="T"), "000000000000000700016101000154"),
    (
        w.UpdateTableEntries(
            request_id=7,
            segment="a",
            token="T",
            entries=(w.TableEntry(key=b"k", version=5, value=b"vw"),),
            table_segment_offset=64,
        ),
        "0000000000000007000161000154000000010000000d000000016b0000000000000005000000060000000276770000000000000040",
    ),
    (w.TableEntriesUpdated(request_id=7, versions=(5, 6)), "00000000000000070000000200000000000000050000000000000006"),
    (
        w.RemoveTableKeys(
            request_id=7, segment="a", token="T", keys=(w.TableKey(key=b"k", version=5),), table_segment_offset=64
        ),
        "0000000000000007000161000154000000010000000d000000016b00000000000000050000000000000040",
    ),
    (w.TableKeysRemoved(request_id=7, segment="a"), "0000000000000007000161"),
    (
        w.ReadTable(request_id=7, segment="a", token="T", keys=(w.TableKey(key=b"k", version=5),)),
        "0000000000000007000161000154000000010000000d000000016b0000000000000005",
    ),
    (
        w.TableRead(request_id=7, segment="a", entries=(w.TableEntry(key=b"k", version=5, value=b"vw"),)),
        "0000000000000007000161000000010000000d000000016b000000000000000500000006000000027677",
    ),
    (w.TableSegmentNotEmpty(request_id=7, segment="a", stack="E"), "0000000000000007000161000145"),
    (w.TableKeyDoesNotExist(request_id=7, segment="a", stack="E"), "0000000000000007000161000145"),
    (w.TableKeyBadVersion(request_id=7, segment="a", stack="E"), "0000000000000007000161000145"),
    (
        w.ReadTableKeys(
            request_id=7,
            segment="a",
            token="T",
            suggested_key_count=3,
            args=w.IteratorArgs(continuation_token=b"\x01", from_key=b"\x02", to_key=b"\x03"),
        ),
        "00000000000000070001610001540000000300000001010000000000000001020000000103",
    ),
    (
        w.TableKeysRead(
            request_id=7, segment="a", keys=(w.TableKey(key=b"k", version=5),), continuation_token=b"\xaa\xbb"
        ),
        "0000000000000007000161000000010000000d000000016b000000000000000500000002aabb",
    ),
    (
        w.ReadTableEntries(
            request_id=7,
            segment="a",
            token="T",
            suggested_entry_count=3,
            args=w.IteratorArgs(continuation_token=b"\x01", from_key=b"\x02", to_key=b"\x03"),
        ),
        "00000000000000070001610001540000000300000001010000000000000001020000000103",
    ),
    (
        w.TableEntriesRead(
            request_id=7,
            segment="a",
            entries=(w.TableEntry(key=b"k", version=5, value=b"vw"),),
            continuation_token=b"\xaa\xbb",
        ),
        "0000000000000007000161000000010000000d000000016b00000000000000050000000600000002767700000002aabb",
    ),
    (
        w.TableEntriesDeltaRead(
            request_id=7,
            segment="a",
            entries=(w.TableEntry(key=b"k", version=5, value=b"vw"),),
            should_clear=True,
            reached_end=True,
            last_position=64,
        ),
        "0000000000000007000161000000010000000d000000016b00000000000000050000000600000002767701010000000000000040",
    ),
    (
        w.ReadTableEntriesDelta(request_id=7, segment="a", token="T", from_position=64, suggested_entry_count=3),
        "0000000000000007000161000154000000000000004000000003",
    ),
    (
        w.ConditionalBlockEnd(writer_id=WRITER, event_number=9, expected_offset=64, data=b"\xaa\xbb", request_id=7),
        "000000000000000100000000000000020000000000000009000000000000004000000002aabb0000000000000007",
    ),
    (
        w.MergeSegmentsBatch(request_id=7, target="a", sources=("b", "c"), token="T"),
        "000000000000000700016100000002000162000163000154",
    ),
    (
        w.SegmentsBatchMerged(
            request_id=7,
            target="a",
            merged=(
                w.MergedSource(source="b", new_target_write_offset=64),
                w.MergedSource(source="c", new_target_write_offset=65),
            ),
        ),
        "00000000000000070001610000000200016200000000000000400001630000000000000041",
    ),
    (w.KeepAlive(), ""),
    (
        w.LocateOffset(request_id=7, segment="a", target_offset=64, token="T"),
        "00000000000000070001610000000000000040000154",
    ),
    (w.OffsetLocated(request_id=7, segment="a", offset=64), "00000000000000070001610000000000000040"),
]

# Code -> how many bytes may be missing at the end of the vector above, because old peers leave those fields out, and
# what the command is without them.
SHORTER: dict[int, dict[int, dict[str, object]]] = {
    4: {8: {"request_id": -1}},
    5: {8: {"request_id": -1}},
    9: {8: {"request_id": -1}},
    20: {8: {"rollover_size_bytes": 0}},
    50: {3: {"stack": ""}},
    51: {8: {"offset": -1}, 11: {"offset": -1, "stack": ""}},
    52: {3: {"stack": ""}},
    53: {8: {"offset": -1}, 11: {"offset": -1, "stack": ""}},
    55: {8: {"event_number": -1}, 11: {"event_number": -1, "stack": ""}},
    56: {8: {"offset": -1}, 11: {"offset": -1, "stack": ""}},
    57: {3: {"stack": ""}},
    58: {37: {"attribute_updates": ()}},
    70: {
        8: {"rollover_size_bytes": 0},
        12: {"rollover_size_bytes": 0, "key_length": 0},
        13: {"rollover_size_bytes": 0, "key_length": 0, "sorted_deprecated": False},
    },
    74: {8: {"table_segment_offset": -1}},
    76: {8: {"table_segment_offset": -1}},
    83: {
        5: {"args": w.IteratorArgs(b"\1", b"\2")},
        10: {"args": w.IteratorArgs(b"\1")},
        14: {"args": w.IteratorArgs(b"\1")},
        19: {"args": w.IteratorArgs()},
    },
    85: {
        5: {"args": w.IteratorArgs(b"\1", b"\2")},
        10: {"args": w.IteratorArgs(b"\1")},
        14: {"args": w.IteratorArgs(b"\1")},
        19: {"args": w.IteratorArgs()},
    },
}
