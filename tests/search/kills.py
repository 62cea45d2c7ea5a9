"""`make search-kills`: an index of source code and documentation, whose node is killed again and again, against a scan.

The lines of the Python files and texts of installed packages are written to a stream, which is indexed every second and
scaled now and then, while its node is killed by SIGKILL and starts again.  A part of it is truncated in the middle.
When the index has reached the tail, drawn queries are asked of the index, page by page, and of all events that the
stream has, read in batches: both give the same places.  So no event is missing in the index, and none is in it twice.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import site
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sarit.client import aio
from sarit.core.errors import SaritError
from sarit.core.names import StreamName
from sarit.search.mapping import Mapping
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.nodes import RunningNode
from tests.search.scanned import answered, expected

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM: Final = StreamName("app", "lines")
FLUSH_LINES: Final = 2000
MOST_HITS: Final = 30_000  # of a drawn query
CATCH_UP_SECONDS: Final = 900.0
KILL_SECONDS: Final = 3.0  # from one kill to the next, about
_WORD: Final = re.compile(r"[^\W_]+")


def corpus(count: int) -> Iterator[str]:
    """Yield so many lines of the files of installed packages that are texts."""
    left = count
    for root in site.getsitepackages():
        for path in sorted(Path(root).rglob("*")):
            if path.suffix not in (".py", ".pyi", ".md", ".rst", ".txt"):
                continue
            for line in path.read_text(errors="replace").splitlines():
                if line.strip():
                    yield line
                    left -= 1
                if not left:
                    return


def queries(lines: list[str], draw: random.Random, count: int) -> list[str]:
    """Return queries of words, phrases, beginnings and their combinations, drawn by the frequency of words."""

    def word() -> str:
        while True:
            found = _WORD.findall(draw.choice(lines))
            if found and found[0].upper() not in ("AND", "OR", "NOT", "TO"):
                chosen: str = draw.choice(found)
                if chosen.upper() not in ("AND", "OR", "NOT", "TO"):
                    return chosen

    def phrase() -> str:
        while True:
            found = _WORD.findall(draw.choice(lines))
            if len(found) >= 3:
                at = draw.randrange(len(found) - 2)
                return '"' + " ".join(found[at : at + draw.choice((2, 3))]) + '"'

    kinds = (
        word,
        phrase,
        lambda: f"{word()} {word()}",
        lambda: f"{word()} OR {word()}",
        lambda: f"{word()} -{word()}",
        lambda: f"({word()} OR {phrase()}) {word()}",
        lambda: f"{(word() + 'ing')[:4]}* {word()}",
        lambda: f"NOT {word()} {word()} {phrase()}",
    )
    return [kinds[number % len(kinds)]() for number in range(count)]


async def write(
    client: aio.Client, lines: list[str], seconds: float, result: Counter[str], draw: random.Random
) -> None:
    """Write all lines in about so many seconds, scale now and then, and truncate once."""
    pause = seconds * FLUSH_LINES / len(lines)
    async with client.writer(STREAM) as writer:
        for number, line in enumerate(lines):
            writer.write(line.encode(), key=str(number % 97))
            if number % FLUSH_LINES == FLUSH_LINES - 1:
                await writer.flush()
                await asyncio.sleep(pause)
            if number == len(lines) // 3:
                await client.truncate_stream(STREAM, cut=await client.stream_cut_tail(STREAM))
                result["truncated"] += 1
            if number % (len(lines) // 5) == len(lines) // 10:
                with suppress(SaritError):  # another scale is under way
                    result["scales"] += await client.stream(STREAM).scale(draw.choice((1, 2, 3, 4)))


async def kill(node: RunningNode, kills: int, written: asyncio.Task[None], draw: random.Random) -> int:
    """Kill a node, and start it again, so many times; return how many of the kills were made while events came."""
    busy = 0
    for _ in range(kills):
        await asyncio.sleep(draw.uniform(0.1, 2 * KILL_SECONDS - 1))
        busy += not written.done()
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
    return busy


async def wait_until_indexed(client: aio.Client) -> None:
    """Wait until the index has all events."""
    ends = time.monotonic() + CATCH_UP_SECONDS
    while True:
        with suppress(SaritError):
            info = await client.search.info(STREAM)
            if info.cut is not None and not info.bytes_behind:
                return
        assert time.monotonic() < ends, "the index does not catch up"
        await asyncio.sleep(0.5)


async def compare(client: aio.Client, lines: list[str], draw: random.Random, count: int) -> tuple[int, int, list[str]]:
    """Return how many events and hits there were, and what differs."""
    texts = [*queries(lines, draw, count), "*"]
    events, wanted = await expected(client, STREAM, Mapping(), texts)
    problems, hits = [], 0
    for text, places_of in zip(texts, wanted, strict=True):
        if len(places_of) > MOST_HITS:
            total = (await client.search(STREAM, text, limit=1, events=False)).total
            hits += total
            if total != len(places_of):
                problems.append(f"{text}: the index has {total} events, the stream {len(places_of)}")
            continue
        found = await answered(client, STREAM, text, MOST_HITS)
        hits += len(found)
        if len(found) != len(set(found)):
            problems.append(f"{text}: {len(found) - len(set(found))} events twice")
        if set(found) != places_of:
            missing, more = places_of - set(found), set(found) - places_of
            problems.append(f"{text}: {len(missing)} missing, as {min(missing, default=None)}; {len(more)} more")
    return events, hits, problems


async def run(options: argparse.Namespace, directory: Path) -> list[str]:
    """Write, kill, wait and compare; print what was done, and return what was wrong."""
    draw, began, result = random.Random(options.seed), time.monotonic(), Counter[str]()
    lines = list(corpus(options.lines))
    with RunningNode(directory / "node", "--log-level", "warning") as node:
        async with await aio.connect(node.controller) as client:
            await client.create_scope(STREAM.scope)
            await client.create_stream(STREAM, segments=2)
            settings = SearchSettings(Mapping(), interval_seconds=1).encode()
            await client.stream(STREAM).create_job(SEARCH_KIND, settings, SEARCH_JOB)
            written = asyncio.ensure_future(write(client, lines, options.kills * KILL_SECONDS, result, draw))
            busy = await kill(node, options.kills, written, draw)
            await written
            await wait_until_indexed(client)
            events, hits, problems = await compare(client, lines, draw, options.queries)
    print(
        f"{len(lines)} lines, {events} events kept, {options.kills} kills ({busy} beside writes), "
        f"{result['scales']} scales, {options.queries + 1} queries with {hits} hits; {len(problems)} differ; "
        f"{time.monotonic() - began:.0f} s"
    )
    return problems


def main() -> int:
    """Run it; 1: something differs."""
    parser = argparse.ArgumentParser(description="An index against a scan, through kills")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        problems = asyncio.run(run(options, Path(directory)))
    print("\n".join(problems[:20]))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
