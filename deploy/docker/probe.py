#!/opt/sarit/bin/python -IS
"""Ask a probe of the process in this container: `sarit-probe livez`, or `readyz`.

The port is that of SARIT_HTTP_PORT, or the one that serves of 9091 (a node, a controller), 9092 (a store) and 9093 (a
worker).  The exit code is 0 if the probe says yes, and 1 if it says no or nobody answers.
"""

import http.client
import os
import ssl
import sys

TIMEOUT_SECONDS = 4


def ask(port: int, probe: str, *, tls: bool) -> tuple[bool, str]:
    """Whether it says yes, and its words.  Raises OSError if nobody answers."""
    if tls:
        # The certificate is for the names that clients use, and nobody but the container is at its 127.0.0.1.
        unchecked = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS, context=unchecked)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"/{probe}")
        response = connection.getresponse()
        return response.status == 200, response.read(4096).decode(errors="replace")
    finally:
        connection.close()


def main() -> int:
    """The exit code."""
    probe = sys.argv[1] if len(sys.argv) > 1 else "livez"
    given = os.environ.get("SARIT_HTTP_PORT", "")
    ports = [int(given)] if given.isdigit() else [9091, 9092, 9093]
    for port, tls in [(port, tls) for port in ports for tls in (False, True)]:
        try:
            yes, words = ask(port, probe, tls=tls)
        except (OSError, http.client.HTTPException):
            continue
        print(words.strip())
        return 0 if yes else 1
    print("nobody answers")
    return 1


sys.exit(main())
