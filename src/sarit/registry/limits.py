"""Bounds of the schema registry."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- names -------------------------------------------------------------------------------------
MAX_NAMESPACE_CHARACTERS: Final = 255
MAX_REGISTRY_NAME_CHARACTERS: Final = 255  # of a group, a codec and a format
MAX_TYPE_CHARACTERS: Final = 1024  # of the full name of a record or message
MAX_REFERENCE_CHARACTERS: Final = 512  # of the name by which a text refers to another schema
MAX_REGISTRY_PROPERTIES: Final = 32  # of a group, a version or a codec
MAX_REGISTRY_PROPERTY_BYTES: Final = 4 * KIB  # of all names and values of such properties together

# -- counts ------------------------------------------------------------------------------------
MAX_SCHEMA_GROUPS: Final = 100_000
MAX_VERSIONS_OF_GROUP: Final = 10_000  # softly deleted ones included
MAX_ENCODINGS_OF_GROUP: Final = 20_000
MAX_CODECS_OF_GROUP: Final = 32

# -- numbers: clients read ids, versions and encodings as signed integers of 32 bits --------------------
MAX_REGISTRY_NUMBER: Final = (1 << 31) - 1
# The highest id and version that a registration may bring with it: above, there is room for 147 restores.
MAX_IMPORTED_NUMBER: Final = 2_000_000_000
# How far counters rise after a restore: more than were given between the backup and the loss.
NUMBERS_LEFT_OUT_BY_RESTORE: Final = 1_000_000

# -- rows --------------------------------------------------------------------------------------
SCHEMA_PART_BYTES: Final = 512 * KIB  # of a schema's text in one row: a value of a table has less than 1 MiB
MAX_ROWS_PER_READ: Final = 1000  # that one request names
LISTED_AT_ONCE: Final = 200  # versions or groups that are decoded before the event loop has its turn
MAX_CHANGE_ATTEMPTS: Final = 30  # of a change, when others change the registry at the same time
CHANGE_PAUSE_SECONDS: Final = 0.05  # the longest pause before another attempt
PURGED_VERSIONS_PER_BATCH: Final = 100  # each may have 66 rows of encodings

# -- computing ---------------------------------------------------------------------------------
MAX_WAITING_FOR_PARSER: Final = 256  # requests that wait for the thread that parses and compares
MAX_WAITING_PARSER_BYTES: Final = 64 * MIB  # the texts of their schemas
CACHED_VALUE_SHARE_BYTES: Final = 256  # is added to the size of each cached value, so that small ones are bounded
CACHED_SCHEMA_BYTES: Final = 32 * MIB  # texts of schemas that were read
CACHED_DEFINITION_BYTES: Final = 4 * MIB  # texts of the schemas that are kept as they were parsed, which takes more
READ_FOR_COMPARISON: Final = 50  # versions whose schemas one request reads
COMPARED_AT_ONCE: Final = 5  # versions that one step on the thread compares: the event loop has its turn in between
MAX_COMPARISON_SECONDS: Final = 10.0  # for comparing one schema with the versions of a group

# -- both APIs ---------------------------------------------------------------------------------
# The largest body of a request: a schema of 1 MiB, each of its characters written as an escape of six.  Less than the
# HTTP port takes (`admin/limits.py`), so that the answer has the form that the client knows.
MAX_REGISTRY_BODY_BYTES: Final = 7 * MIB
# The bodies of all requests under way.
MAX_REGISTRY_BODIES_BYTES: Final = 64 * MIB
# From a request to its answer; less than the HTTP port grants, for the same reason.
REGISTRY_ANSWER_SECONDS: Final = 20.0
# How many characters of a path the log shows.
MAX_LOGGED_PATH_CHARS: Final = 200

# -- Pravega's API -----------------------------------------------------------------------------
PRAVEGA_GROUPS: Final = 100  # in a page of groups when a client names no number
MAX_PRAVEGA_GROUPS: Final = 1000  # in one page of groups
MAX_PRAVEGA_ANSWER_BYTES: Final = 32 * MIB  # the data and texts of the schemas in one list
