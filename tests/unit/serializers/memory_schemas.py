"""A source of schemas in memory, for tests of what decodes events."""

from __future__ import annotations

from sarit.core.errors import NotFound
from sarit.serializers.schema_source import WrittenSchema, written_schema


class MemorySchemas:
    """Versions of subjects, whose numbers are those of the whole source.  `asked`: the numbers, in order."""

    def __init__(self) -> None:
        self._versions: dict[str, list[WrittenSchema]] = {}
        self._numbers: list[WrittenSchema] = []
        self.asked: list[int] = []

    def add(self, subject: str, text: str, format: str = "AVRO", references: dict[str, str] | None = None) -> int:
        """Add a version.  Returns the number that headers of its events have."""
        schema = written_schema(format, text, references or {})
        self._versions.setdefault(subject, []).append(schema)
        self._numbers.append(schema)
        return len(self._numbers)

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema of a number."""
        self.asked.append(number)
        if not 1 <= number <= len(self._numbers):
            raise NotFound(f"there is no schema {number}")
        return self._numbers[number - 1]

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return a version of a subject."""
        found = self._versions.get(subject, [])
        if not found or (version is not None and not 1 <= version <= len(found)):
            raise NotFound(f"subject {subject} has no version {version or 'at all'}")
        number = len(found) if version is None else version
        return found[number - 1]._replace(version=number)
