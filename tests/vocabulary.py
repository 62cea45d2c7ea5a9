"""Words of a dialect that this project gave up, each with the standard terms to use instead.

`tests/test_tidy.py` searches for them in identifiers (split at underscores and capitals) and in prose: documents,
docstrings, comments and messages.  Only words whose every use was dialect are listed.
"""

from __future__ import annotations

from typing import Final

# A word of an identifier -> what to say instead.
RETIRED: Final = {
    "anew": "again, new, re-",
    "asleep": "idle",
    "bed": "harness",
    "captured": "snapshot",
    "caretaker": "maintenance loop",
    "cramped": "over_control_limit",
    "crew": "many-connections test, connections",
    "crews": "many-connections test, connections",
    "crowd": "many-connections test, connections",
    "door": "GrpcListener, listener",
    "doors": "listeners",
    "finisher": "commit worker",
    "finishers": "commit workers",
    "fronted": "bound to a foreign thread",
    "gathering": "batch",
    "guest": "GrpcConnection, connection",
    "heard": "received, on_<event>",
    "hint": "pending-work entry, sizehint",
    "hints": "pending-work entries",
    "insistently": "with_retry",
    "lane": "segment appender",
    "lanes": "segment appenders",
    "look": "poll, scan, sweep, tick, evaluate, collect",
    "looked": "polled, scanned, swept, evaluated",
    "looks": "polls, scans, sweeps, ticks, evaluations",
    "pace": "rate, rate limiter",
    "paced": "rate limited",
    "patience": "retry_timeout, request_timeout, grace, interval_factor",
    "patiently": "with_retry",
    "planted": "mutant, patched",
    "presence": "membership",
    "pump": "dispatch",
    "pumps": "dispatch",
    "reception": "RequestLimiter, limiter",
    "remembered": "retained, cached, completed",
    "residency": "MetadataCache",
    "room": "memory quota, free space, reply slot, send credit",
    "roster": "membership",
    "settle": "complete_pending, wait, resolve",
    "settles": "complete_pending, wait, resolve",
    "settling": "completing, waiting",
    "shares": "assignment, quotas",
    "silence": "failure detector, idle time",
    "sometimes": "coverage_probe",
    "spread": "Partitioner",
    "team": "reader group",
    "tell": "report, notify, distinguish",
    "tells": "reports, notifies, distinguishes",
    "told": "reported, notified",
    "touch": "copy-on-write hook",
    "turnstile": "ReplySemaphore",
    "watched": "maintenance index, patched",
    "wish": "ScaleAdvice",
}

# Identifiers that other code defines -> where they come from.
ALLOWED_IDENTIFIERS: Final = {
    "has_presence": "of the library of Protobuf",
    "get_type_hints": "of Python's typing",
    "__length_hint__": "of Python's iterators",
    "field_presence": "of features of Protobuf",
    "Lane": "of the library detangle",
    "tell": "of Python's files",
    "touch": "of Python's pathlib",
}

# Path (or the beginning of it) -> words that may be used there, and why.
ALLOWED_PLACES: Final = {
    "simulation/": ({"lane", "lanes"}, "detangle calls its unit of scheduling a lane"),
    "simulation/network.py": ({"pump"}, "the attribute of a pipe of detangle that has the timer of its next message"),
    "src/sarit/client/aio.py": ({"patience"}, "an argument that is named in the error for those who still give it"),
    "tests/unit/client/blocking/test_client.py": ({"patience"}, "the same argument, in the test of that error"),
}

# Words of prose: in no sense of theirs are they needed.
RETIRED_PROSE: Final = {
    "anew": "again",
    "asleep": "idle",
    "caretaker": "maintenance loop",
    "cramped": "over the control limit",
    "fronted": "bound to a foreign thread",
    "insistently": "with retries",
    "patience": "retry timeout, request timeout, grace",
    "patiently": "with retries",
    "roster": "membership",
    "told": "reported, notified, given",
    "turnstile": "reply semaphore",
    "unhurried": "in the background",
    "finisher": "commit worker",
    "planted": "mutant",
    "lane": "segment appender",
    "lanes": "segment appenders",
    "looked": "polled, scanned, checked",
}
