"""How much of a core 10,000 continuous queries take at 10,000 events a second.

python -m benchmarks.continuous [--queries N] [--events N] [--batches N] [--rate N] [--seed N]

The events are lines of sources and documentation of installed packages, drawn at random.  Each query has two or three
words, drawn by how often they occur in these lines; queries whose rarest word is in more than a hundredth of them are
drawn again, so that about one pair of query and event in a hundred is a candidate at most.  What a worker does on its
thread is measured: documents of the events, their index in memory, all queries, and the matches made into events of the
output.  Batches hold what comes in a second; processor time of one thread, the median of all batches and the worst.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from sarit.core.names import StreamName
from sarit.search.analyzer import tokens
from sarit.search.continuous_matches import encoded, next_ones
from sarit.search.continuous_queries import CompiledQueries, required
from sarit.search.continuous_rows import ContinuousQuery, Definition
from sarit.search.continuous_set import Asked
from sarit.search.event_language import EventLanguage
from sarit.search.mapping import Mapping

if TYPE_CHECKING:
    from sarit.search.query import Query

STREAM: Final = StreamName("bench", "lines")
OUTPUT: Final = StreamName("bench", "matches")
RAREST: Final = 0.01
"""The most events of all that the rarest word of a query is in."""
MIN_WORD: Final = 2
SUFFIXES: Final = (".py", ".pyi", ".md", ".rst", ".txt")


def lines(count: int, chance: random.Random) -> list[bytes]:
    """Return lines of installed packages, in a random order."""
    files = sorted(path for root in sys.path for path in Path(root).glob("**/*") if path.suffix in SUFFIXES)
    chance.shuffle(files)
    found: list[bytes] = []
    for path in files:
        try:
            found += [line.strip().encode() for line in path.read_text().splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError):
            continue
        if len(found) >= count * 2:
            break
    chance.shuffle(found)
    return found[:count]


def drawn_queries(events: list[bytes], count: int, chance: random.Random) -> list[str]:
    """Return texts of queries whose words are drawn by how often they occur."""
    every: Counter[str] = Counter()
    holding: Counter[str] = Counter()
    for event in events:
        words = [word for word in tokens(event.decode()) if len(word) >= MIN_WORD]
        every.update(words)
        holding.update(set(words))
    known, weights = list(every), list(every.values())
    found: list[str] = []
    while len(found) < count:
        drawn = chance.choices(known, weights, k=chance.choice((2, 3)))
        if len(set(drawn)) == len(drawn) and min(holding[word] for word in drawn) <= RAREST * len(events):
            found.append(" ".join(drawn))
    return found


def measure(queries: int, rate: int, batches: int, seed: int) -> dict[str, float]:
    """Return the figures."""
    chance = random.Random(seed)
    events = lines(rate * batches, chance)
    language = EventLanguage(Mapping())
    texts = drawn_queries(events, queries, chance)
    begun = time.process_time()
    bound = [language.query(text) for text in texts]
    keys = [f"query-{n:06}".encode() for n in range(queries)]
    compiled = CompiledQueries(zip(keys, bound, strict=True))
    compiling = time.process_time() - begun
    made = {
        key: ContinuousQuery(key.decode(), f"{n:032x}", STREAM, wanted := Definition(text, OUTPUT), wanted)
        for n, (key, text) in enumerate(zip(keys, texts, strict=True))
    }
    asked = Asked(made, compiled)
    took: list[float] = []
    parts: list[tuple[float, float, float]] = []
    matches = candidates = 0
    for first in range(0, len(events), rate):
        batch = events[first : first + rate]
        places = [(0, 100 * n) for n in range(len(batch))]
        begun = time.thread_time()
        timed = language.batch(batch, compiled.wanted)
        indexed = time.thread_time()
        found = compiled.match(timed.index)
        matched = time.thread_time()
        written = encoded(asked, found, places, batch, timed.times)
        while part := next_ones(written):
            matches += sum(len(each) for _, each in part.values())
        ended = time.thread_time()
        took.append(ended - begun)
        parts.append((indexed - begun, matched - indexed, ended - matched))
        candidates += _candidates(language, batch, bound)
    seconds = median(took)
    return {
        "queries": queries,
        "events": len(events),
        "bytes_per_event": sum(map(len, events)) / len(events),
        "candidates_percent": 100 * candidates / (queries * len(events)),
        "matches_per_second": matches / batches,
        "compile_seconds": compiling,
        "batch_seconds": seconds,
        "worst_batch_seconds": max(took),
        "of_them_documents": median(part[0] for part in parts),
        "of_them_queries": median(part[1] for part in parts),
        "of_them_matches": median(part[2] for part in parts),
        "core_percent": 100 * seconds,
        "events_per_second": rate / seconds,
    }


def _candidates(language: EventLanguage, batch: list[bytes], bound: list[Query]) -> int:
    """Return how many pairs of a query and an event have a word that the query requires."""
    holding: Counter[str] = Counter()
    for event in batch:
        holding.update(set(tokens(event.decode())))
    found = 0
    for query in bound:
        words = required(query)
        found += 0 if words is None else max(holding[word] for _, _, word in words)
    return found


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.queries, chosen.rate, chosen.batches, chosen.seed), indent=1))


if __name__ == "__main__":
    main()
