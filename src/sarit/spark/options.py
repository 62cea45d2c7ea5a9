"""Reads `.option(...)` for all parts of the connector: tables of options, and checks of their values.

Each package has a table `OPTIONS` of its own.  `Given` has the options that a user gave, by names without regard to
case.  Unknown options are refused, since a misspelt limit would be no limit.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.spark.limits import SPARK_WAIT_SECONDS
from sarit.spark.login import SECRETS, credentials_of, tls_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.client.core.login import Credentials, Tls

DEFAULT_CONTROLLER: Final = "127.0.0.1:9090"

READ: Final = "read"  # batch and streaming
BATCH_READ: Final = "batch read"
STREAMING_READ: Final = "streaming read"
WRITE: Final = "write"
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Option:
    """An option, as the table of docs/spark.md shows it.  `default`: text for the table; "": no default."""

    name: str
    use: str
    meaning: str
    default: str = ""


OPTIONS: Final = (
    Option(
        "controller", ALL, "`host:port`; several with commas; `tls://` before it asks for TLS",
        "`SARIT_CONTROLLER` of the driver, else `127.0.0.1:9090`",
    ),
    Option("stream", ALL, "`SCOPE/STREAM`; must exist. `load(\"SCOPE/STREAM\")` is the same"),
    Option("user", ALL, "the user to log in as", "`SARIT_USER` of the driver"),
    Option(
        "passwordFile", ALL, "the password of `user` is the first line of this file, which the driver reads",
        "`SARIT_PASSWORD` or `SARIT_PASSWORD_FILE` of the driver",
    ),
    Option(
        "tokenFile", ALL,
        "the token of an identity provider, instead of `user`: the first line of this file, which driver and executors "
        "read for each call",
        "`SARIT_TOKEN` or `SARIT_TOKEN_FILE` of the driver",
    ),
    Option("caFile", ALL, "TLS: the CA of the server's certificate, at this path on all machines", "`SARIT_CA_FILE`"),
    Option("certFile", ALL, "TLS: our certificate, if the server asks for one, on all machines", "`SARIT_CERT_FILE`"),
    Option("keyFile", ALL, "TLS: the key of `certFile`, on all machines", "`SARIT_KEY_FILE`"),
    Option("path", ALL, "the same as `stream`; set by `load(\"SCOPE/STREAM\")`"),
    Option(
        "waitSeconds", ALL,
        "how long the driver or a task goes on trying while the node does not reply, as during a restart: when it "
        "connects, and in every call. Then the task fails, and Spark repeats it",
        f"`{SPARK_WAIT_SECONDS}`",
    ),
)  # fmt: skip

# Options of Spark itself, which it passes on with the user's.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "triggerinterval", "mergeschema"})


@dataclass(frozen=True, slots=True)
class Target:
    """The controller's address (`host:port`), how long to wait for a node that does not reply, and the credentials.

    Spark pickles it for the executors; its repr shows no secret."""

    controller: str
    wait_seconds: int = SPARK_WAIT_SECONDS
    credentials: Credentials | None = None
    tls: Tls | None = None


class Given:
    """The options that a user gave, checked against tables.  Raises Invalid for unknown options, with similar names."""

    def __init__(self, options: Mapping[str, str], tables: Iterable[Sequence[Option]]) -> None:
        known = {option.name.lower(): option.name for table in (OPTIONS, *tables) for option in table}
        self._values = {name.lower(): value for name, value in options.items()}
        for name, (instead, variable) in SECRETS.items():
            if name.lower() in self._values:
                raise Invalid(f"option {name} could show in Spark's plans: use {instead}, or {variable}")
        unknown = [name for name in options if name.lower() not in known and name.lower() not in _OF_SPARK]
        if unknown:
            raise Invalid(_unknown(sorted(unknown), known))

    def text(self, name: str) -> str | None:
        """Return the value of an option; None: it is not given."""
        return self._values.get(name.lower())

    def positive(self, name: str) -> int | None:
        """Return an option's value as an integer of at least 1; None: it is not given.  Raises Invalid."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < 1:
            raise Invalid(f"option {name} is {text!r}: give a whole number of at least 1")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option's value as true or false.  Raises Invalid."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, values: Sequence[str], default: str) -> str:
        """Return the one of `values` that an option has, without regard to case.  Raises Invalid."""
        text = self.text(name)
        if text is None:
            return default
        found = {value.lower(): value for value in values}.get(text.strip().lower())
        if found is None:
            raise Invalid(f"option {name} is {text!r}: give {' or '.join(values)}")
        return found

    def target(self, default_controller: str) -> Target:
        """Return the address of the node, and the credentials.  Raises Invalid."""
        controller = self.text("controller") or default_controller
        wait_seconds = self.positive("waitSeconds") or SPARK_WAIT_SECONDS
        return Target(controller, wait_seconds, credentials_of(self.text), tls_of(self.text, controller))

    def stream(self) -> StreamName:
        """Return the stream that option `stream` or `load(...)` names.  Raises Invalid: neither is given."""
        name = self.text("stream") or self.text("path")
        if not name:
            raise Invalid('which stream? give .option("stream", "SCOPE/STREAM")')
        return StreamName.parse(name)


def _unknown(unknown: Sequence[str], known: Mapping[str, str]) -> str:
    guesses = [known[found] for name in unknown for found in difflib.get_close_matches(name.lower(), known, 1)]
    advice = f"; did you mean {', '.join(dict.fromkeys(guesses))}?" if guesses else ";"
    return f"unknown option {', '.join(unknown)}{advice} known are {', '.join(sorted(known.values()))}"
