"""Bounds of full-text search."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- mappings --------------------------------------------------------------------------------------
MAX_MAPPED_FIELDS: Final = 200  # of one stream
MAX_FIELD_PATH_CHARACTERS: Final = 256  # of the path of one field
MAX_SEARCH_SETTINGS_BYTES: Final = 14 * KIB  # of the settings of one index, which are those of its job

MAX_SAMPLED_EVENTS: Final = 1000  # of which a mapping is inferred
MAX_SAMPLED_BYTES: Final = 8 * MIB  # of events after which no more are read, to infer a mapping
MAX_INFERRED_MAPPING_BYTES: Final = 12 * KIB  # of the fields of one as JSON: the state of an indexer has it

# -- documents -------------------------------------------------------------------------------------
# Of the first bytes of an event only; the rest is not searched, and the event is counted.
MAX_DOCUMENT_BYTES: Final = 1 * MIB
MAX_DOCUMENT_TOKENS: Final = 20_000  # of all texts of one event
MAX_TOKEN_CHARACTERS: Final = 128  # a longer word is cut there, in events and in queries
MAX_KEYWORD_CHARACTERS: Final = 256  # a longer value of a keyword is cut there, in events and in queries

MAX_VISITED_VALUES: Final = 20_000  # of an event, with its objects and arrays, that are visited, and so searched

# -- queries ---------------------------------------------------------------------------------------
MAX_QUERY_CHARACTERS: Final = 4 * KIB
MAX_QUERY_PARTS: Final = 256  # terms, phrases and ranges of one query
MAX_QUERY_DEPTH: Final = 32
MIN_PREFIX_CHARACTERS: Final = 2
MAX_PREFIX_TERMS: Final = 10_000  # words of a shard that a prefix may stand for

# -- continuous queries ----------------------------------------------------------------------------
MAX_CONTINUOUS_NAME_CHARACTERS: Final = 128  # of the name of a continuous query
MAX_CONTINUOUS_ROW_BYTES: Final = 32 * KIB  # of a continuous query as it is stored
MAX_CONTINUOUS_ROLES: Final = 64  # of the maker of a query, as they are kept with it
# Events of one segment that are asked about together, without a pause for other work of the process.
CONTINUOUS_SLICE_EVENTS: Final = 4_096
CONTINUOUS_BATCH_SECONDS: Final = 1.0  # matches are written so long after their events, about
MAX_CONTINUOUS_BATCH_EVENTS: Final = 50_000
MAX_CONTINUOUS_BATCH_BYTES: Final = 32 * MIB
# Progress without matches is stored so often: to ask about the same events again costs time, and nothing else.
CONTINUOUS_SAVE_SECONDS: Final = 10.0
CONTINUOUS_OUTPUT_CHECK_SECONDS: Final = 10.0  # between two looks at an output that could not be written to
MAX_CONTINUOUS_PROBLEM_CHARACTERS: Final = 300
MAX_MATCH_EVENT_BYTES: Final = 512 * KIB  # of an event that is copied into its match
MAX_CONTINUOUS_CHANGES: Final = 500  # of queries that come, change or go, after which events may be due
CONTINUOUS_ADOPTION_SECONDS: Final = 2.0  # for which events wait for such changes, about
CONTINUOUS_ROWS_AT_ONCE: Final = 32  # of queries, written together: all of them, or none
CONTINUOUS_ENCODED_MATCHES: Final = 1_000  # matches that are made into events at a time
CONTINUOUS_LAG_SECONDS: Final = 10.0  # between two measurements of how far queries are behind
CONTINUOUS_EVENT_POLL_SECONDS: Final = 0.1  # between two looks for new events
MAX_COUNTED_CONTINUOUS: Final = 40_000  # queries whose matches a process counts, those that are deleted too
MAX_CONTINUOUS_REPEATS: Final = 5  # of a batch whose transactions were aborted, in one run

# -- an index --------------------------------------------------------------------------------------
DEFAULT_INDEX_INTERVAL_SECONDS: Final = 5
MIN_INDEX_INTERVAL_SECONDS: Final = 1
MAX_INDEX_INTERVAL_SECONDS: Final = 3600
COMMIT_TIME_KEPT: Final = 0.9  # of the time that a commit took, at the next one: the longest of the last ones counts
MAX_INDEX_FILE_BYTES: Final = 4096 * MIB
MAX_STORE_FILE_BYTES: Final = 256 * MIB  # of a file of a closed shard that is stored compressed
MAX_STATE_BYTES: Final = 60 * KIB  # of an indexer's state, which is that of its job
MAX_SHARDS_BYTES: Final = 16 * MIB  # of the list of closed shards, compressed
# Of memory in which a shard collects events until they are files: the least that tantivy takes is 15 MB.
INDEX_MEMORY_BYTES: Final = 48 * MIB
# Of a commit: a merge in the background replaces files while they are read.
MAX_FILE_LIST_ATTEMPTS: Final = 100
# A shard is closed once it has so much; it is stored twice for an hour, and on the disk of the indexer meanwhile.
MAX_SHARD_BYTES: Final = 512 * MIB
MAX_SHARD_EVENTS: Final = 5_000_000
MIN_SHARD_EVENTS: Final = 100_000  # a shard with fewer is not closed before it is a day old
SHARD_HOUR_MS: Final = 3_600_000
MAX_SHARD_AGE_MS: Final = 24 * SHARD_HOUR_MS
LARGE_STATE_BYTES: Final = 40 * KIB  # at which the growing shard is closed, however small it is
UPLOAD_BYTES: Final = 8 * MIB  # of the files of a shard in memory at once, on their way to or from a blob
# Of events that are not committed yet: what a takeover indexes again.
MAX_UNCOMMITTED_BYTES: Final = 64 * MIB
HOUSEKEEPING_SECONDS: Final = 60.0  # between looks for truncated shards, and for whether the job is still ours
IDLE_SHARD_SECONDS: Final = 300.0  # after which the growing shard of a stream without events is closed locally
# Shards that grow in a process, each with INDEX_MEMORY_BYTES and some threads: more indexers go on in turn.
MAX_GROWING_SHARDS: Final = 16
# Of one turn, if there are events for so long: whoever has the next one downloads the files of a shard first.
GROWING_TURN_SECONDS: Final = 60.0
GARBAGE_SECONDS: Final = 600.0  # between looks for blobs that nobody refers to
OLD_BLOB_SECONDS: Final = 3600.0  # for which searches may still read what a commit has replaced
APPENDED_SECONDS: Final = 1.0  # between questions about when events were appended
MAX_HISTOGRAM_BUCKETS: Final = 10_000  # of one answer
# The first hits of a shard are sought in ranges of order keys in which so many times as many may be expected if events
# lie evenly in time; of fewer matching events than these, all are sorted.
HIT_WINDOWS: Final = (2**-16, 2**-8, 4.0, 64.0)
MIN_WINDOWED_HITS: Final = 20_000
FACET_CANDIDATES: Final = 10_000  # values of a part of a shard that are counted for a facet: more are about right

# -- what people see of hits ------------------------------------------------------------------------
MAX_HIGHLIGHTS: Final = 200  # places of one text that are marked

# -- searches --------------------------------------------------------------------------------------
MAX_SEARCH_HITS: Final = 1_000  # of one page
MAX_FACETS: Final = 10  # of one search
MAX_FACET_VALUES: Final = 1_000  # of one facet
# A shard gives so many times the values of a facet that are asked for: the most frequent of one are not those of all.
FACET_FACTOR: Final = 4
MAX_TIED_HITS: Final = 10_000  # with the same order key, on pages one after the other
MAX_PAGE_BYTES: Final = 256 * KIB  # of the token of a page: 16 bytes for each of 16,000 segments of a cut
MAX_SEARCH_MS: Final = 1 << 42  # of a time that a search names, before 1970 (1830) or after (2109); of a bucket
MAX_SEARCH_CACHE_BYTES: Final = 8192 * MIB  # of the parts of indexes that a process keeps on its disk
MAX_SEARCH_CACHE_FILES: Final = 20_000  # of the same
MIN_SEARCH_FREE_BYTES: Final = 1024 * MIB  # which a search leaves free on the disk
MAX_SEARCH_DOWNLOADS: Final = 8  # files of indexes that come at once
COPIED_PIECE_BYTES: Final = 1 * MIB  # of such a file, read at once
SEARCH_THREADS: Final = 4  # of a process, on which searches run
MAX_SEARCHES: Final = 64  # under way in a process
MAX_SEARCHES_OF_CALLER: Final = 16  # under way in a process, of one user
