"""What every call of the controller, and every command of the wire, gives to callers of each kind, written by hand.

A column is nobody, a user without a rule, a stranger (who may do everything in another scope), a reader, a writer, an
administrator; `+` is allowed, `x` forbidden, `-` asked to log in.
"""

from __future__ import annotations

COLUMNS = (None, "nobody", "stranger", "reader", "writer", "root")
ANYBODY, LOGGED_IN, READS, WRITES, ADMIN = "++++++", "-+++++", "-xx+++", "-xxx++", "-xxxx+"
NOT_EVEN_ADMIN = "-xxxxx"
# The calls between installations, by their own resource: no right on a scope gives one.
MIRROR_READS = {
    "mirrorStreams", "mirrorFacts", "mirrorOffers", "mirrorRead", "mirrorGrown", "mirrorTables", "mirrorTableChanges",
    "mirrorCuts", "mirrorGroups",
}  # fmt: skip
MIRROR_WRITES = {
    "mirrorHold", "mirrorBegin", "mirrorStates", "mirrorWrite", "mirrorFinish", "mirrorDrop",
    "mirrorRestart", "mirrorPromote", "mirrorBeginTables", "mirrorCompareTable", "mirrorWriteTable", "mirrorCutTimes",
    "mirrorAddCuts", "mirrorPutGroups", "mirrorPromoteAttached",
}  # fmt: skip
# About the system's scope: the schema registry.
MIRRORS_OF_SYSTEM = {
    "mirrorTables", "mirrorTableChanges", "mirrorBeginTables", "mirrorCompareTable", "mirrorWriteTable",
    "mirrorPromoteAttached",
}  # fmt: skip

CALLS = {
    "getControllerServerList": ANYBODY,
    "listScopes": LOGGED_IN,
    "getControllerToBucketMapping": ADMIN, "listRules": ADMIN, "changeRules": ADMIN, "listQuotas": ADMIN,
    "changeQuotas": ADMIN, "quotaUse": ADMIN, "createLink": ADMIN, "listLinks": ADMIN, "linkStatus": ADMIN,
    "changeLink": ADMIN, "deleteLink": ADMIN, "promoteLink": ADMIN,
    "checkScopeExists": READS, "listStreamsInScope": READS, "listStreamsInScopeForTag": READS, "streamConfigs": READS,
    "listKeyValueTablesInScope": READS, "getStreamConfiguration": READS, "checkStreamExists": READS,
    "getCurrentSegments": READS, "getEpochSegments": READS, "getSegments": READS,
    "getSegmentsImmediatlyFollowing": READS, "getSegmentsImmediatelyFollowing": READS, "getSegmentsBetween": READS,
    "checkScale": READS, "getURI": READS, "isSegmentValid": READS, "isStreamCutValid": READS,
    "checkTransactionState": READS, "listCompletedTransactions": READS, "getDelegationToken": READS,
    "getCurrentSegmentsKeyValueTable": READS, "getKeyValueTableConfiguration": READS, "listSubscribers": READS,
    "search": READS, "searchShards": READS, "searchInfo": READS, "listContinuous": READS, "putContinuous": WRITES,
    "deleteContinuous": WRITES,
    "createReaderGroup": READS, "getReaderGroupConfig": READS, "updateReaderGroup": READS, "deleteReaderGroup": READS,
    "cutAt": READS, "scalingEvents": READS, "creationId": READS, "streamProperties": READS,
    "changeStreamProperties": WRITES, "createJob": WRITES, "deleteJob": WRITES, "listJobs": READS,
    "createScope": WRITES, "deleteScope": WRITES, "deleteScopeRecursive": WRITES, "createStream": WRITES,
    "updateStream": WRITES, "truncateStream": WRITES, "sealStream": WRITES, "deleteStream": WRITES, "scale": WRITES,
    "createTransaction": WRITES, "pingTransaction": WRITES, "commitTransaction": WRITES, "abortTransaction": WRITES,
    "noteTimestampFromWriter": WRITES, "removeWriter": WRITES, "createKeyValueTable": WRITES,
    "deleteKeyValueTable": WRITES, "dropSubscriber": WRITES, "mirrorFence": WRITES,
    # With READ on the group that is named, too; the owner of the stream needs no right on it.
    "updateSubscriberStreamCut": READS,
    "mirrorSite": LOGGED_IN, "mirrorScopes": LOGGED_IN, **dict.fromkeys(MIRROR_READS | MIRROR_WRITES, ADMIN),
}  # fmt: skip
# What may be asked of the scope whose tables the rules are in.
ABOUT_SYSTEM = {
    "checkScopeExists": LOGGED_IN, "listStreamsInScope": ADMIN, "listStreamsInScopeForTag": ADMIN,
    "streamConfigs": ADMIN, "listKeyValueTablesInScope": ADMIN, **dict.fromkeys(MIRRORS_OF_SYSTEM, ADMIN),
}  # fmt: skip
# Names that a thing can have, or by which official clients ask for it.
NAMES = ["s", "_RGs", "_MARKs", "_MARKx", "s_kvtable", "..", "-", "_x"]
# Names that nothing has, though the text of a rule or of a resource may look so.
ODD_NAMES = [
    "*", "s*", "a/b", "", "s/stream:s", "a b", "%2e%2e", "a" * 300, "s#transaction." + "0" * 32, "a\0b", "s\n", "\x7f",
    "\u0455", "x_y", "__s",
]  # fmt: skip
WITH_TOKEN = {
    "getCurrentSegments", "getEpochSegments", "getSegments", "getSegmentsImmediatlyFollowing",
    "getSegmentsImmediatelyFollowing", "getSegmentsBetween", "createTransaction", "getDelegationToken",
    "getCurrentSegmentsKeyValueTable",
}  # fmt: skip

# Of each command of a client: who may send it for a segment of each kind, with the token that the controller gives out
# for that name.  `r`: who may read; `w`: who may change; not listed: nobody, administrators neither.
SEGMENTS = {
    "stream": ("s", "app/s/0.#epoch.0"),
    "transaction": ("s", "app/s/0.#epoch.0#transaction." + "a" * 32),
    "transient": ("s", "app/s/0.#epoch.0#transient." + "b" * 32 + "." + "c" * 32),
    "group": ("_RGs", "app/_RGs/0.#epoch.0"),
    "marks": ("_MARKs", "app/_MARKs/0.#epoch.0"),
    "table": ("s_kvtable", "app/s_kvtable/0.#epoch.0"),
    "partition": ("s_kvtable", "app/s_kvtable/3.#epoch.0"),
    "index": ("s", "app/s/0.#epoch.0#index"),
    "transaction of a group": ("_RGs", "app/_RGs/0.#epoch.0#transaction." + "a" * 32),
    "system": ("_tables", "_system/_tables/access"),
    "system stream": ("_tables", "_system/_tables/0.#epoch.0"),
}
_BYTES = {"stream": "r", "group": "r", "marks": "r"}
_ENTRIES = {"table": "r", "partition": "r"}
COMMANDS = {
    "SetupAppend": {"stream": "w", "transaction": "w", "transient": "w", "group": "r"},
    "CreateTransientSegment": {"stream": "w", "transaction": "w"},
    "MergeSegments": {"stream": "w", "transaction": "w"},
    "UpdateSegmentAttribute": {"stream": "w", "group": "r"},
    "TruncateSegment": {"stream": "w", "group": "r"},
    "SealSegment": {"stream": "w"},
    "CreateTableSegment": {"table": "w"}, "DeleteTableSegment": {"table": "w"},
    "UpdateTableEntries": {"table": "w", "partition": "w"}, "RemoveTableKeys": {"table": "w", "partition": "w"},
    "ReadSegment": _BYTES, "GetStreamSegmentInfo": _BYTES, "GetSegmentAttribute": _BYTES, "LocateOffset": _BYTES,
    "GetTableSegmentInfo": _ENTRIES, "ReadTable": _ENTRIES, "ReadTableKeys": _ENTRIES, "ReadTableEntries": _ENTRIES,
    "ReadTableEntriesDelta": _ENTRIES,
    "CreateSegment": {}, "DeleteSegment": {}, "UpdateSegmentPolicy": {}, "MergeSegmentsBatch": {},
}  # fmt: skip
TABLE_COMMANDS = {name for name, kinds in COMMANDS.items() if "table" in kinds}
# Of no stream: a connection says hello, keeps alive, and sends blocks for a writer that was set up.
NO_TOKEN_COMMANDS = {"Hello", "KeepAlive", "AppendBlock", "AppendBlockEnd", "ConditionalAppend"}
