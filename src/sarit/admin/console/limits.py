"""Bounds of the web console."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

CONSOLE_TOKEN_BYTES: Final = 32
# Log-ins of browsers: at most so many, each for so long at most, and so long without a request.
CONSOLE_MAX_SESSIONS: Final = 256
CONSOLE_MAX_SESSIONS_OF_USER: Final = 16
CONSOLE_SESSION_SECONDS: Final = 12 * 3600.0
CONSOLE_SESSION_IDLE_SECONDS: Final = 3600.0
# Lists: names are read as far as a page needs them, and searched in memory; a page of them is shown.
CONSOLE_MAX_NAMES: Final = 100_000
CONSOLE_NAMES_AT_ONCE: Final = 100
CONSOLE_COUNT_SECONDS: Final = 0.1
CONSOLE_NAMES_SECONDS: Final = 10.0
CONSOLE_PAGE_ROWS: Final = 50
CONSOLE_MAX_PAGE_ROWS: Final = 200
CONSOLE_ASKED_AT_ONCE: Final = 16
# What lasts: server-sent events, over all pages that are open.
CONSOLE_MAX_LIVE: Final = 64
CONSOLE_MAX_LIVE_OF_USER: Final = 16
CONSOLE_KEEP_ALIVE_SECONDS: Final = 10.0
CONSOLE_OVERVIEW_SECONDS: Final = 2.0
# Live tails: what is scanned and shown in one interval; behind by more than so long, a tail skips to the end.
CONSOLE_TAIL_INTERVAL_SECONDS: Final = 0.25
CONSOLE_TAIL_SCANNED_BYTES: Final = MIB
CONSOLE_TAIL_EVENTS: Final = 50
CONSOLE_TAIL_BEHIND_SECONDS: Final = 2.0
CONSOLE_SHOWN_EVENT_BYTES: Final = 8 * KIB
CONSOLE_BROWSE_SECONDS: Final = 5.0
CONSOLE_BROWSE_EVENTS: Final = 100
CONSOLE_MAX_FILTER_CHARS: Final = 200
# Searches: of one, what it reads, how long it takes, what it finds, before it asks whether to go on; and how many at
# once in this process.
CONSOLE_SEARCH_BYTES: Final = 256 * MIB
CONSOLE_SEARCH_SECONDS: Final = 20.0
CONSOLE_SEARCH_HITS: Final = 100
CONSOLE_MAX_SEARCHES: Final = 2
CONSOLE_SEARCH_REPORT_SECONDS: Final = 0.2  # between two reports without a hit
CONSOLE_SEARCH_SHARE: Final = 0.5  # of the time: a search rests for the other part, and appends go on
# Searches by an index: hits of a page, fields whose values are counted, values of each, and bars over time.
CONSOLE_FIND_HITS: Final = 20
CONSOLE_FACETS: Final = 4
CONSOLE_FACET_VALUES: Final = 6
CONSOLE_BARS: Final = 60
MAX_CONSOLE_CHOSEN_VALUES: Final = 8  # of facets, which all hits have
# The heat map of a stream: one sampler for all who see it, which ends when nobody does.
CONSOLE_HEAT_SECONDS: Final = 2.0
CONSOLE_HEAT_COLUMNS: Final = 450
CONSOLE_HEAT_RECORDED_COLUMNS: Final = 60
CONSOLE_HEAT_ROWS: Final = 128
CONSOLE_HEAT_MAX_SAMPLERS: Final = 16
CONSOLE_HEAT_LINGER_SECONDS: Final = 600.0
CONSOLE_HEAT_QUEUE_COLUMNS: Final = 30
# The time that an interval of samples grows by for each segment of the stream.
CONSOLE_HEAT_SECONDS_PER_SEGMENT: Final = 0.01
CONSOLE_MAX_EVENT_BYTES: Final = MIB
CONSOLE_TABLE_ROWS: Final = 50
CONSOLE_SHOWN_VALUE_BYTES: Final = 4 * KIB
CONSOLE_MAX_VALUE_BYTES: Final = MIB  # of one that is changed
CONSOLE_MAX_QUOTAS: Final = 200  # that are shown
CONSOLE_MAX_RATED_SEGMENTS: Final = 2000  # whose rates are asked for at once
CONSOLE_MAX_TRANSACTIONS: Final = 500
CONSOLE_MAX_NAME_CHARS: Final = 512  # of a group of the schema registry, in a call
# Queries: their text, and what one may read of streams without being asked, and when it is.
CONSOLE_MAX_QUERY_CHARS: Final = 64 * KIB
CONSOLE_QUERY_BYTES: Final = 256 * MIB
MAX_CONSOLE_QUERY_BYTES: Final = 16 * 1024 * MIB
# Events that are shown by their schemas: larger ones are shown as they are.
CONSOLE_DECODED_EVENT_BYTES: Final = 64 * KIB
CONSOLE_DECODED_TEXT_CHARS: Final = 64 * KIB
CONSOLE_DECODER_SCHEMAS: Final = 32  # that one page keeps
