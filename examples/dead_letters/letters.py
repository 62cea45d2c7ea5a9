"""Events that cannot be processed go to a stream of dead letters: they neither stop the others nor get lost.

    python examples/dead_letters/letters.py shop/payments           # process; ends when sealed
    python examples/dead_letters/letters.py shop/payments --again   # after the bug is fixed

An event that fails is retried a few times, since the cause may be temporary.  Then it is written to `<stream>-dead`,
with the reason and its offset, and the position advances only when that is durable.  After a crash an event may be a
dead letter twice, which its offset shows, but it is never lost.

`--again` processes each dead letter once more.  One that succeeds is dropped, and one that fails is appended again.
When that is durable, the old letters are truncated.  A letter that succeeded is processed again only when the program
dies before the truncation.
"""

from __future__ import annotations

import argparse
import base64
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import sarit

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES: Final = 3
EVENTS_AT_ONCE: Final = 500


def dead_letters_of(stream: str) -> str:
    """Where the events of a stream go that cannot be processed."""
    return f"{stream}-dead"


def failure(event: bytes, handle: Callable[[bytes], None]) -> Exception | None:
    """Process an event with retries; the last error if all failed."""
    last: Exception | None = None
    for _ in range(TRIES):
        try:
            handle(event)
        except Exception as error:  # no error of an event may stop the others
            last = error
        else:
            return None
    return last


def process(
    client: sarit.Client, stream: str, handle: Callable[[bytes], None], start: str, done: Callable[[str], None]
) -> int:
    """Process a stream from a position until it is sealed; `done(position)` after each batch.  Returns dead letters."""
    client.create_stream(dead_letters_of(stream))
    dead = 0
    with client.reader(stream, start=start) as reader, client.writer(dead_letters_of(stream)) as letters:
        while (table := reader.read_arrow(EVENTS_AT_ONCE)) is not None:
            for row in table.to_pylist():
                error = failure(row["event"], handle)
                if error is not None:
                    dead += 1
                    letter = {"event": base64.b64encode(row["event"]).decode(), "error": repr(error)}
                    letters.write(json.dumps(letter | {"segment": row["segment"], "offset": row["offset"]}))
            letters.flush()
            done(str(reader.position()))
    return dead


def letters(client: sarit.Client, stream: str, end: sarit.StreamCut | str = "tail") -> list[dict[str, Any]]:
    """The dead letters of a stream before `end`, each once."""
    found = map(json.loads, client.reader(dead_letters_of(stream), end=end))
    return list({(letter["segment"], letter["offset"]): letter for letter in found}.values())


def again(client: sarit.Client, stream: str, handle: Callable[[bytes], None]) -> int:
    """Process the dead letters once more, and drop those that succeed; return how many still fail."""
    dead = dead_letters_of(stream)
    end = client.stream_cut_tail(dead)  # letters that arrive meanwhile wait for the next run
    failed = 0
    with client.writer(dead) as writer:
        for letter in letters(client, stream, end):
            error = failure(base64.b64decode(letter["event"]), handle)
            if error is not None:
                failed += 1
                writer.write(json.dumps(letter | {"error": repr(error)}))
        writer.flush()
        client.truncate_stream(dead, cut=end)
    return failed


def pay(event: bytes) -> None:
    """What this program does with an event: `account,amount`."""
    account, _, amount = event.decode().partition(",")
    if int(amount) < 0:
        raise ValueError(f"{account}: a negative payment")


def main() -> None:
    """Process a stream of payments, or its dead letters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("--again", action="store_true", help="process the dead letters instead")
    parser.add_argument("--start", default="head", help="where to begin: head, tail or a stream cut")
    parser.add_argument("stream")
    options = parser.parse_args()
    with sarit.connect(options.controller, wait=60) as client:
        if options.again:
            print(again(client, options.stream, pay), "still fail")
        else:
            done = partial(print, flush=True)  # where to continue after a crash
            print(process(client, options.stream, pay, options.start, done), "dead letters")


if __name__ == "__main__":
    main()
