"""Bounds of the REST API."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

MAX_REST_BODY_BYTES: Final = MIB
# From the request to its answer: less than the HTTP port grants (`admin/limits.py`), so that ours says what happened.
REST_ANSWER_SECONDS: Final = 20.0
# Of scopes, streams or reader groups in one answer.
MAX_LISTED: Final = 10_000
# Pravega's bounds on tags.
MAX_TAGS: Final = 128
MAX_TAG_CHARS: Final = 256
# In days or MiB (95 PiB); in ms or bytes they are below 2^63.
MAX_RETENTION_VALUE: Final = 100_000_000_000
# In days, hours and minutes; the sum of the three is below 2^63 ms.
MAX_RETENTION_PART: Final = 100_000_000
# Of links: the name, any text in the settings, and globs or priorities in one list.  The controller's are the same.
MAX_LINK_PATH_CHARS: Final = 48
MAX_LINK_FIELD_CHARS: Final = 512
MAX_LINK_LIST: Final = 64
# Of the index of a stream: fields of a mapping, and the path of one.  Those of search are the same.
MAX_REST_FIELDS: Final = 200
MAX_REST_PATH_CHARS: Final = 256
MAX_REST_INTERVAL_SECONDS: Final = 3600
# Of a search: its text, the token of a page, hits of an answer, and bytes that are shown of an event.
MAX_REST_QUERY_CHARS: Final = 4096
MAX_REST_PAGE_CHARS: Final = 16_384
MAX_REST_HITS: Final = 100
MAX_REST_EVENT_BYTES: Final = 65_536
MAX_REST_FACETS: Final = 10
MAX_REST_FACET_VALUES: Final = 100
