"""Table names and keys of the controller's records.

    _system/_tables/scopes              <scope>                      ScopeRecord
    _system/_tables/work                c/<scope>                    pending: a scope that is being deleted
                                        s/<scope>/<stream>           pending: a stream with unfinished work
                                        g/<scope>/<reader group>     pending: a group being changed or deleted
                                        k/<scope>/<table>            pending: a table being deleted
                                        x/<scope>/<stream>/<txn>     pending: a transaction that has not ended
    _system/_tables/watched             r/<scope>/<stream>           maintained: a stream with a retention policy
                                        w/<scope>/<stream>           maintained: a stream whose writers note times
    _system/_tables/access              <subject> 00 <resource>      permission: a rule of access
    _system/_tables/numbers             <scope>                      first segment number for new streams and tables,
                                                                     once a scope of this name was deleted
    _system/_tables/quotas              q/<subject>                  limits, as text (security/quotas.py)
                                        f/<scope>                    a scope over its storage quota; its bytes, as text
    _system/_tables/jobs                <scope>/<stream>/<kind>/<name>   pending: a background job (controller/jobs.py)
    _system/_tables/links               l/<link>                     a link to another installation (mirror/)
                                        s/<link id, 32 hex>/<scope>  the link has mirrors in the scope; no value
                                        n                            written again with each change of links; no value
    _system/_tables/search              i/<creation id, 32 hex>      an index: its stream, as SCOPE/STREAM
                                        b/<blob>                     a blob of an index (process/search/site.py)
                                        q/…, m/…                     continuous queries (search/continuous_rows.py)
    _system/_tables/<scope>/<16 hex>    s/<stream>                   StreamRecord
      (the hex digits are the           d/<stream>                   first segment number of a new stream of the name
      scope's incarnation)              t/<tag> 00 <stream>          streams by tag; no value
                                        g/<reader group>             GroupRecord
                                        m/<reader group>             MakerRecord: who created the group
                                        k/<table>                    TableRecord
                                        o/<stream or table>/ and then
                                          i                          CreationRecord
                                          p                          properties of a stream
                                          e/<epoch, 8 hex>           epochs from that one on, moved out of the record
                                          b/<subscriber>             SubscriberRecord
                                          c/<ms, 12 hex>             CutRecord, for retention
                                          h/<link, 32 hex>           what a link holds (controller/hold_records.py)
                                          t/<ms, 12 hex>             CutRecord of the timeline, its size 0
                                          w/<writer>                 WriterRecord
                                          x/<transaction, 32 hex>    TransactionRecord, until it ends
                                          z/<transaction>            CompletedRecord
                                          j/<kind>/<name>            settings of a background job
                                          s/<kind>/<name>            progress of a background job
                                          l                          MirrorRecord (mirror/mirror_records.py)
                                          y/<ms, 12 hex>/<transaction>  the same in order of time; no value

The table `work` is the *pending-work index*, and `watched` is the *maintenance index*.  Their entries are written
before the work or the policy, and removed after it: they may be stale.

All records of a scope are in one table, so that one atomic batch can change a stream with its tags, its watermark
stream and its number.  A recreated scope has another incarnation and hence another table, so a delayed controller's
write to a deleted scope fails.  To delete a scope is to delete its table, on the condition that the table has not
changed since it was found to have no stream, group or table.

Names of scopes and streams contain no "/"; keys are in unsigned byte order, so all keys with a prefix are one range.
"""

from __future__ import annotations

from typing import Final

from sarit.controller.limits import MAX_TAG_BYTES
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SYSTEM_SCOPE, StreamName

SCOPES_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/scopes"
WORK_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/work"
MAINTENANCE_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/watched"
NUMBERS_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/numbers"
RULES_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/access"
JOBS_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/jobs"
QUOTAS_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/quotas"
LINKS_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/links"
SEARCH_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/search"
STREAMS: Final = b"s/"
NUMBERS: Final = b"d/"
GROUPS: Final = b"g/"
MAKERS: Final = b"m/"
TABLES: Final = b"k/"
PENDING_SCOPES: Final = b"c/"
PENDING_GROUPS: Final = b"g/"
PENDING_TABLES: Final = b"k/"
PENDING_TRANSACTIONS: Final = b"x/"  # sorts after all others
OWNED: Final = b"o/"
TAGS: Final = b"t/"
EPOCHS: Final = b"e/"
SUBSCRIBERS: Final = b"b/"
WRITERS: Final = b"w/"
LIVE: Final = b"x/"
COMPLETED_BY_TIME: Final = b"y/"
CUTS: Final = b"c/"
TIMELINE: Final = b"t/"
HOLDS: Final = b"h/"
JOBS: Final = b"j/"
JOB_PROGRESS: Final = b"s/"
RETENTION_INDEX: Final = b"r/"
WATERMARK_INDEX: Final = b"w/"
_TXN_DIGITS: Final = 32
_INTERNAL: Final = b"_"


def scope_table(scope: str, incarnation: bytes) -> str:
    """Return the name of a scope's table."""
    return f"{SYSTEM_SCOPE}/_tables/{scope}/{incarnation.hex()}"


def incarnation_of(table: str) -> bytes:
    """Return the incarnation that the name of a scope's table ends with."""
    return bytes.fromhex(table.rpartition("/")[2])


def scope_ranges(token: str) -> list[tuple[bytes, bytes | None]]:
    """Return the ranges of scopes to list after the name `token`: names without a leading underscore come first."""
    # Internal names are in the middle of the byte order: "_" sorts after digits and capitals, before small letters.
    internal, after_internal = _INTERNAL, after_prefix(_INTERNAL)
    start = token.encode() + b"\0" if token else b""
    if start.startswith(internal):
        return [(start, after_internal)]
    before = [(start, internal)] if start < internal else []
    return [*before, (max(start, after_internal), None), (internal, after_internal)]


def stream_key(stream: str) -> bytes:
    """Return the key of a stream's record."""
    return STREAMS + stream.encode()


def link_key(link: str) -> bytes:
    """Return the key of a link in the table of links (`mirror/link_table.py`)."""
    return b"l/" + link.encode()


def number_key(stream: str) -> bytes:
    """Return the key of the next segment number after a deleted stream."""
    return NUMBERS + stream.encode()


def creation_key(stream: str) -> bytes:
    """Return the key of the creation id of a stream, or of a table by the name of its segments."""
    return of_stream(stream, b"i")


def properties_key(stream: str) -> bytes:
    """Return the key of a stream's properties."""
    return of_stream(stream, b"p")


def mirror_key(stream: str) -> bytes:
    """Return the key of what a stream that is, was or has a mirror knows of it."""
    return of_stream(stream, b"l")


def chunk_key(stream: str, epoch: int) -> bytes:
    """Return the key of the chunk with the epochs from `epoch` on that were moved out of a stream's record."""
    return of_stream(stream, EPOCHS) + f"{epoch:08x}".encode()


def tag_prefix(tag: str) -> bytes:
    """Return the prefix of the keys of all streams with a tag.  Raises Invalid for a tag that no key can contain."""
    raw = tag.encode()
    if not raw or b"\0" in raw or len(raw) > MAX_TAG_BYTES:
        raise Invalid(f"a tag has 1 to {MAX_TAG_BYTES} bytes, none of them 0")
    return TAGS + raw + b"\0"


def tag_key(tag: str, stream: str) -> bytes:
    """Return the key of a stream's entry under a tag.  Raises Invalid."""
    return tag_prefix(tag) + stream.encode()


def subscriber_key(stream: str, subscriber: str) -> bytes:
    """Return the key of a stream's subscriber, which is named `scope/reader group`."""
    return of_stream(stream, SUBSCRIBERS) + subscriber.encode()


def writer_key(stream: str, writer: str) -> bytes:
    """Return the key of a writer's last note."""
    return of_stream(stream, WRITERS) + writer.encode()


def cut_key(stream: str, time_ms: int) -> bytes:
    """Return the key of a cut recorded for retention."""
    return of_stream(stream, CUTS) + f"{time_ms:012x}".encode()


def timeline_key(stream: str, time_ms: int) -> bytes:
    """Return the key of a cut in a stream's timeline."""
    return of_stream(stream, TIMELINE) + f"{time_ms:012x}".encode()


def hold_key(stream: str, link_id: bytes) -> bytes:
    """Return the key of what a link holds of a stream."""
    return of_stream(stream, HOLDS) + link_id.hex().encode()


def job_key(rows: bytes, stream: str, kind: str, name: str) -> bytes:
    """Return the key of a row of a background job.  `rows`: JOBS or JOB_PROGRESS."""
    return of_stream(stream, rows) + f"{kind}/{name}".encode()


def transaction_key(stream: str, transaction: int) -> bytes:
    """Return the key of a transaction that is not complete."""
    return of_stream(stream, LIVE) + f"{transaction:032x}".encode()


def completed_key(stream: str, transaction: int) -> bytes:
    """Return the key of a transaction that is complete."""
    return of_stream(stream, b"z/") + f"{transaction:032x}".encode()


def completed_by_time_key(stream: str, ended_ms: int, transaction: int) -> bytes:
    """Return the key of a completed transaction in the order of time."""
    return of_stream(stream, COMPLETED_BY_TIME) + f"{ended_ms:012x}/{transaction:032x}".encode()


def group_key(group: str) -> bytes:
    """Return the key of a reader group's record."""
    return GROUPS + group.encode()


def maker_key(group: str) -> bytes:
    """Return the key of the record of who created a reader group."""
    return MAKERS + group.encode()


def table_key(table: str) -> bytes:
    """Return the key of a key-value table's record."""
    return TABLES + table.encode()


def of_stream(stream: str, kind: bytes = b"") -> bytes:
    """Return the prefix of the records that belong to a stream: all, or one kind."""
    return OWNED + stream.encode() + b"/" + kind


def last_part(key: bytes) -> str:
    """Return the part of a key after the last "/"."""
    return key.rpartition(b"/")[2].decode()


def transaction_of(key: bytes) -> int:
    """Return the transaction that a key ends with."""
    return int(key[-_TXN_DIGITS:], 16)


def pending_scope_key(scope: str) -> bytes:
    """Return the pending-work entry of a scope that may be partly deleted."""
    return f"c/{scope}".encode()


def pending_stream_key(name: StreamName) -> bytes:
    """Return the pending-work entry of a stream that may have unfinished work."""
    return f"s/{name}".encode()


def pending_group_key(scope: str, group: str) -> bytes:
    """Return the pending-work entry of a reader group that may be partly changed or deleted."""
    return PENDING_GROUPS + f"{scope}/{group}".encode()


def pending_table_key(scope: str, table: str) -> bytes:
    """Return the pending-work entry of a key-value table that may be partly deleted."""
    return PENDING_TABLES + f"{scope}/{table}".encode()


def pending_transaction_key(name: StreamName, transaction: int) -> bytes:
    """Return the pending-work entry of a transaction that may not have ended."""
    return f"x/{name}/{transaction:032x}".encode()


def maintenance_key(kind: bytes, name: StreamName) -> bytes:
    """Return the maintenance entry of a stream.  `kind`: RETENTION_INDEX or WATERMARK_INDEX."""
    return kind + str(name).encode()


def parse_maintenance_key(key: bytes) -> StreamName:
    """Return the stream of a maintenance entry.  Raises Corrupt."""
    try:
        return StreamName.parse(key[2:].decode())
    except (UnicodeDecodeError, Invalid) as error:
        raise Corrupt(f"a controller table holds the key {key[:80]!r}: {error}") from error


def parse_pending_key(key: bytes) -> tuple[StreamName, int | None]:
    """Return the stream (reader group, table) of a pending-work entry, and its transaction if any.  Raises Corrupt."""
    try:
        kind, scope, stream, *rest = key.decode().split("/")
        return StreamName(scope, stream), int(rest[0], 16) if kind == "x" else None
    except (ValueError, IndexError) as error:
        raise Corrupt(f"a controller table holds the key {key[:80]!r}: {error}") from error


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key above all that begin with `prefix`.  The last byte of `prefix` must not be ff."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
