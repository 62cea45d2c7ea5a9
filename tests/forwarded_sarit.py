"""The `sarit` and `python` that a shell of a test finds on its path: has a fork server run the command with its own
descriptors, arguments, environment and directory, hands on the signals that it gets, and ends as the command does.

Python starts it alone (`-I -S`), without what Sarit imports: see `on_path` in tests/fork_server.py, which sets the
variable."""

import json
import os
import signal
import socket
import sys
from typing import Any

CONTROLS = "SARIT_TEST_CONTROLS"


def main() -> None:
    """Run the command that this process got as arguments.  The variable holds words that need the server with the
    libraries for tables, and the descriptors of the two servers."""
    tabular, *controls = json.loads(os.environ[CONTROLS])
    words = sys.argv[1:]
    job = {"argv": words, "cwd": os.getcwd(), "env": dict(os.environ)}
    control = socket.socket(fileno=controls[not set(words).isdisjoint(tabular)])
    answers, theirs = socket.socketpair()
    handed_on = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, handed_on)  # until there is a process that they can be handed to
    socket.send_fds(control, [b"j"], [theirs.fileno(), 0, 1, 2])
    theirs.close()
    answers.sendall(json.dumps(job).encode() + b"\n")
    lines = answers.makefile()
    pid = int(lines.readline())

    def hand_on(number: int, _frame: Any) -> None:
        os.kill(pid, number)

    for number in handed_on:
        signal.signal(number, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handed_on)
    code = os.waitstatus_to_exitcode(int(lines.readline()))
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
