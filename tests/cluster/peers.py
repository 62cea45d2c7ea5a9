"""Clients under load, each in a process of its own: `python -m tests.cluster.peers NAME ADDRESS SCOPE STREAM`.

They say what `java/RollingPeer.java` says: "ready", "ack COUNT MILLISECONDS", "call MILLISECONDS", "error TEXT", and
after a line on standard input "end COUNT"."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = 7
PAUSE_SECONDS = 0.02


def say(line: str) -> None:
    print(line, flush=True)


def ended() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def timed(word: str, work: Callable[[], Any]) -> bool:
    """Say how long it took, or its error; whether there was none."""
    began = time.monotonic()
    try:
        work()
    except BaseException as error:
        say(f"error {error!r}".replace("\n", " "))
        return False
    say(f"{word} {(time.monotonic() - began) * 1000:.1f}")
    return True


def load(write: Callable[[str, str], Any], flush: Callable[[], Any], ask: Callable[[int], Any]) -> None:
    """Write and ask until a line comes."""
    say("ready")
    turn = 0
    while not ended():

        def batch(turn: int = turn) -> None:
            for key in range(KEYS):
                write(f"{key}:{turn}", str(key))
            flush()

        if not timed(f"ack {(turn + 1) * KEYS}", batch):
            break  # which of them are in the stream is unknown
        if turn % 10 == 0:
            timed("call", lambda turn=turn: ask(turn % 50))
        turn += 1
        time.sleep(PAUSE_SECONDS)
    say(f"end {turn * KEYS}")


def official(address: str, scope: str, stream: str) -> None:
    """Pravega's Python client, which is its Rust client with a Python face.  It knows one controller."""
    from tests.secured import official_manager

    manager = official_manager(address)
    manager.create_scope(scope)
    manager.create_stream(scope, stream, 4)
    writer = manager.create_writer(scope, stream)

    def ask(number: int) -> None:
        manager.create_stream(scope, f"{stream}-{number}", 1)
        manager.list_stream(scope)

    load(writer.write_event, writer.flush, ask)
    os._exit(0)  # the client's runtime may abort when the interpreter ends


def own(address: str, scope: str, stream: str) -> None:
    """Sarit's client, with transactions beside."""
    import sarit

    with sarit.connect(address) as client:
        client.create_scope(scope)
        client.create_stream(f"{scope}/{stream}", segments=4)
        client.create_stream(f"{scope}/{stream}-tx", segments=2)
        with (
            client.writer(f"{scope}/{stream}") as writer,
            client.transactional_writer(f"{scope}/{stream}-tx", lease_seconds=60) as transactions,
        ):

            def ask(number: int) -> None:
                client.create_stream(f"{scope}/{stream}-{number}")
                client.stream_info(f"{scope}/{stream}")
                with transactions.begin() as transaction:
                    transaction.write(f"{number}", key="t")

            load(lambda event, key: writer.write(event, key=key), writer.flush, ask)


if __name__ == "__main__":
    {"official": official, "sarit": own}[sys.argv[1]](*sys.argv[2:])
