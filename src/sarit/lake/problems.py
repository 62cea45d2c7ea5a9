"""The conditions under which a stream is not committed into its table until an operator decides, each with a name.

A committer that meets one writes nothing: it reports the problem, and looks again after a pause.
"""

from __future__ import annotations

from typing import Final

from sarit.core.errors import Invalid

FOREIGN: Final = "foreign-table"
OTHER_STREAM: Final = "other-stream"
REPLACED: Final = "replaced-table"
MISSING: Final = "missing-table"
ROLLED_BACK: Final = "rolled-back-table"
OTHER_COMMITTER: Final = "other-committer"
PARTITION_SPEC: Final = "partition-spec"
FORMAT_VERSION: Final = "format-version"
SCHEMA: Final = "schema"
DEAD_LETTERS: Final = "dead-letters"


class TableProblem(Invalid):
    """A table that is not written to.  `name` is one of the names above, and the text says what to do."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


_NAMES: Final = frozenset(
    {FOREIGN, OTHER_STREAM, REPLACED, MISSING, ROLLED_BACK, OTHER_COMMITTER, PARTITION_SPEC, FORMAT_VERSION, SCHEMA,
     DEAD_LETTERS}
)  # fmt: skip


def name_in(text: str) -> str:
    """Return the name with which the text of a problem begins; empty: it is another error, which may pass."""
    name = text.partition(":")[0]
    return name if name in _NAMES else ""
