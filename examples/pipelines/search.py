"""Full-text search that runs all the time: standing queries over a stream of text, their hits in another stream.

    python examples/pipelines/search.py [--controller HOST:PORT] [--data DIR]

A query is a few words that a paragraph must have, `-word` for one that it must not have, and "a phrase".  Queries are
in a key-value table: each task reads them, so that a new query holds from the next micro-batch on, without a restart.
An index from words to queries finds the few queries that a paragraph can match, so that there may be many.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root of the repository

from examples.pipelines import inputs, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.streaming import StreamingQuery

    from examples.pipelines.inputs import Event
    from examples.pipelines.program import Place

TEXTS: Final = "library/texts"
HITS: Final = "library/hits"
QUERIES: Final = "library/queries"
NAME_LENGTH: Final = 16
PAGES: Final = 40


@dataclass(frozen=True, slots=True)
class Query:
    """What a paragraph must have and must not have; all in lower case."""

    words: frozenset[str]
    without: frozenset[str]
    phrases: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Query:
        """Raises ValueError when no word is wanted."""
        phrases = tuple(" ".join(words_of(phrase)) for phrase in re.findall(r'"([^"]*)"', text))
        rest = re.sub(r'"[^"]*"', " ", text).split()
        without = frozenset(word[1:].lower() for word in rest if word.startswith("-"))
        wanted = [word for word in rest if not word.startswith("-")] + list(phrases)
        words = frozenset(word for part in wanted for word in words_of(part))
        if not words:
            raise ValueError(f"{text!r} has no word to search for")
        return cls(words, without, phrases)

    def matches(self, words: list[str]) -> bool:
        """Whether a paragraph, as its words in order, is a hit."""
        found = set(words)
        text = f" {' '.join(words)} "
        return self.words <= found and not self.without & found and all(f" {one} " in text for one in self.phrases)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


class Standing:
    """All queries, by one word of each."""

    def __init__(self, queries: Mapping[str, str]) -> None:
        self._by_word: dict[str, list[tuple[str, Query]]] = defaultdict(list)
        for name, text in sorted(queries.items()):
            query = Query.parse(text)
            self._by_word[max(query.words, key=len)].append((name, query))  # long words are rare

    def hits(self, text: str) -> list[str]:
        """The names of the queries that a paragraph matches."""
        words = words_of(text)
        return [name for word in set(words) for name, query in self._by_word.get(word, ()) if query.matches(words)]


def searching(controller: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work of a task: paragraphs to hits, by the queries as they are now."""

    def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        import sarit

        with sarit.connect(controller, wait=60) as client:
            queries = {entry.primary.decode().strip(): entry.value.decode() for entry in client.table(QUERIES).scan()}
        standing = Standing(queries)
        for batch in batches:
            hits = [
                (json.dumps({"query": name, "id": paragraph["id"]}), name)
                for paragraph in map(json.loads, batch.column("event").to_pylist())
                for name in standing.hits(paragraph["text"])
            ]
            columns = [pa.array([hit[column] for hit in hits], pa.string()) for column in (0, 1)]
            yield pa.RecordBatch.from_arrays(columns, names=["event", "routing_key"])

    return search


def add(place: Place, name: str, text: str) -> None:
    """Store a query.  Raises ValueError when it makes no sense."""
    Query.parse(text)
    place.client.table(QUERIES).put(name.ljust(NAME_LENGTH), text)


def start(place: Place) -> StreamingQuery:
    """The streaming query; it continues from its checkpoint."""
    return (
        place.spark.readStream.format("sarit")
        .schema("event string")
        .option("controller", place.controller)
        .option("stream", TEXTS)
        .load()
        .mapInArrow(searching(place.controller), "event string, routing_key string")
        .writeStream.format("sarit")
        .option("controller", place.controller)
        .option("stream", HITS)
        .option("checkpointLocation", place.checkpoint("search"))
        .start()
    )


def write(place: Place, paragraphs: list[Event]) -> None:
    """Write paragraphs; they are durable at the end."""
    with place.client.writer(TEXTS) as writer:
        for event in paragraphs:
            writer.write(event.body, key=event.key)


def hits_of(place: Place, paragraphs: list[Event]) -> Counter[tuple[str, str]]:
    """The hits without Spark, by the queries as they are now."""
    queries = {entry.primary.decode().strip(): entry.value.decode() for entry in place.client.table(QUERIES).scan()}
    standing = Standing(queries)
    found = (json.loads(event.body) for event in paragraphs)
    return Counter((name, one["id"]) for one in found for name in standing.hits(one["text"]))


def run(place: Place) -> None:
    """Text flows; in the middle a query is added."""
    place.client.create_scope("library")
    place.client.create_stream(TEXTS, segments=2)
    place.client.create_stream(HITS, segments=2)
    place.client.tables.create(QUERIES, primary_key_bytes=NAME_LENGTH)
    add(place, "iteration", "iterator -generator")
    add(place, "phrase", '"list of"')
    paragraphs = inputs.paragraphs(PAGES)
    half = len(paragraphs) // 2
    write(place, paragraphs[:half])
    wanted = hits_of(place, paragraphs[:half])
    query = start(place)
    try:
        query.processAllAvailable()
        add(place, "added", "class function")
        wanted += hits_of(place, paragraphs[half:])
        write(place, paragraphs[half:])
        query.processAllAvailable()
    finally:
        query.stop()
    hits = [json.loads(event) for event in place.client.reader(HITS, end="tail")]
    found = Counter((hit["query"], hit["id"]) for hit in hits)
    program.expect("hits", found, wanted)
    print(f"{len(hits)} hits in {len(paragraphs)} paragraphs")
    for name, count in sorted(Counter(hit["query"] for hit in hits).items()):
        print(f"  {name}: {count}")


if __name__ == "__main__":
    program.main("search", __doc__, run)
