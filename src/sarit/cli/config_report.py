"""Options as text: the effective values with their origins, a commented example, a table for the documentation.

All of it is made from the declarations of the options.  What may be a secret is not printed.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sarit.cli.configured_commands import allowed_values, configured_commands, key_of, origin_of, settable, variable_of
from sarit.cli.option_types import Advertise, HttpPort, Processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import click

HIDDEN: Final = "***"
EXAMPLE_WIDTH: Final = 100

_USER: Final = re.compile(r"(?<=://)[^/?#\s'\"]*@")
_QUERY: Final = re.compile(
    r"([?&][^=&\s]*(?:key|secret|password|passwd|token|signature)[^=&\s]*=)[^&\s'\")]+", re.IGNORECASE
)
_SECRET_NAME: Final = re.compile(r"(^|[-_])(secret|password|passwd|token|key)($|[-_])", re.IGNORECASE)
_DEFAULT: Final = re.compile(r"\s*\[default: ([^\]]*)\]\s*$")
# What S3 is reached with; see `storage/open.py`.
_AWS: Final = (
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
)  # fmt: skip
_PUBLIC: Final = ("URL", "REGION")
# Values for options without a default; any other is shown by its metavar.
_EXAMPLES: Final = {
    "storage": "s3://bucket/sarit",
    "index-storage": "s3://bucket/sarit-index",
    "index": "s3://bucket/sarit",
    "memory": "2G",
    "advertise": "node1.example.com",
    "cluster": "zookeeper://zk1:2181,zk2:2181,zk3:2181/first",
    "id": "store-1",
    "machine": "node1",
    "expect": 3,
    "containers": 16,
    "log": "bookkeeper://zk1:2181,zk2:2181/ledgers",
}


def without_secrets(text: str) -> str:
    """Return the text with users and passwords of URLs, and keys of their queries, hidden."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))


@dataclass(frozen=True, slots=True)
class Effective:
    """One option as it holds.  `value`: as in TOML, None without one.  `unset`: what holds instead of a value."""

    option: str
    variable: str
    value: object
    origin: str
    unset: str = ""

    @property
    def text(self) -> str:
        """The value for people."""
        if self.value is None:
            return f"({self.unset})" if self.unset else "-"
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return " ".join(map(str, self.value)) if isinstance(self.value, list) else str(self.value)


def effective(ctx: click.Context, environ: Mapping[str, str]) -> list[Effective]:
    """Return the options of a command that was parsed, in the order of their declaration, and what S3 is reached
    with."""
    rows = []
    for option in settable(ctx.command):
        value = _shown(option, ctx.params.get(option.name or ""))
        rows.append(Effective(key_of(option), variable_of(option), value, origin_of(ctx, option), default_text(option)))
    if any(isinstance(row.value, str) and row.value.startswith("s3:") for row in rows):
        for name in _AWS:
            if value := environ.get(name):
                shown = without_secrets(value) if name.rpartition("_")[2] in _PUBLIC else HIDDEN
                rows.append(Effective(name, name, shown, "environment"))
    return rows


def chosen(ctx: click.Context) -> list[Effective]:
    """Return the options that are not the default."""
    return [row for row in effective(ctx, {}) if row.origin != "default"]


def _shown(option: click.Option, value: object) -> object:
    # Names of files, and numbers, are none.
    if isinstance(value, str) and _SECRET_NAME.search(key_of(option)):
        return HIDDEN
    return toml_value(option, value)


def toml_value(option: click.Option, value: object) -> Any:
    """Return a value as one writes it into the file; secrets in URLs are hidden."""
    if isinstance(value, tuple):
        return [toml_value(option, part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool):
        if option.type.name == "size":
            return size_text(value)
        if value == 0 and isinstance(option.type, Processes):
            return "auto"
        if value < 0 and isinstance(option.type, HttpPort):
            return "off"
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(option.type, Advertise) and value is not None:
        return str(value)
    return without_secrets(str(value)) if isinstance(value, str | Path) else value


def size_text(size: int) -> str | int:
    """`512M` for 536870912, if it is a whole number of them."""
    for power, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return size


def default_text(option: click.Option) -> str:
    """Return what an option without a value means, as its help says it."""
    found = _DEFAULT.search(option.help or "")
    return found[1] if found else ""


def help_text(option: click.Option) -> str:
    """Return the help without its default."""
    return _DEFAULT.sub("", option.help or "")


def default_value(option: click.Option) -> Any:
    """Return the default as in TOML; None: there is none, or it depends on the machine."""
    default = option.default
    if option.is_flag:
        return default is True
    if callable(default) or option.required or str(default).startswith("Sentinel"):
        return None
    return toml_value(option, default)


def in_toml(value: object) -> str:
    """Return one value as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(map(in_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


# -- the example --------------------------------------------------------------------------------


def grouped_options() -> dict[str, list[click.Option]]:
    """Return the options by table of the file; the empty one has those that mean the same for every command that has
    them."""
    commands = configured_commands()
    every = [(name, option) for name, command in commands.items() for option in settable(command)]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, option in every:
        alike.setdefault(_meaning(option), []).append(name)
    keys = [meaning[0] for meaning, names in alike.items() if len(names) > 1]
    shared = {meaning for meaning, names in alike.items() if len(names) > 1 and keys.count(meaning[0]) == 1}
    found: dict[str, list[click.Option]] = {"": [], **{name: [] for name in commands}}
    for name, option in every:
        meaning = _meaning(option)
        if meaning not in shared:
            found[name].append(option)
        elif alike[meaning][0] == name:
            found[""].append(option)
    return found


def _meaning(option: click.Option) -> tuple[str, str, str]:
    return key_of(option), option.help or "", str(default_value(option))


def example() -> str:
    """Return a file with every option as a comment."""
    lines = [
        "# Options of Sarit: standalone, store, controller, and cluster init ([init]).",
        "# Each may also be a flag, as --data-dir, or a variable, as SARIT_DATA_DIR.",
        "# The flag wins over the variable, the variable over this file, a table over the top.",
        "# Made by `sarit config example`; `sarit config check FILE` checks a file.",
        "",
        "# -- for all commands that have them",
    ]
    for table, options in grouped_options().items():
        if table:
            lines += ["", f"[{table}]"]
        for option in options:
            lines += ["", *_example_of(option)]
    return "\n".join(lines) + "\n"


def _example_of(option: click.Option) -> Iterator[str]:
    default = default_text(option)
    allowed = allowed_values(option)
    about = " ".join(help_text(option).split())
    about += f"  Allowed: {allowed}." if allowed and not option.is_flag else ""
    about += f"  Default: {default}." if default and default_value(option) is None else ""
    yield from textwrap.wrap(about, EXAMPLE_WIDTH, initial_indent="# ", subsequent_indent="# ")
    yield f"#{key_of(option)} = {in_toml(example_value(option))}"


def example_value(option: click.Option) -> Any:
    """Return the default, or a value that there could be, or the metavar."""
    value = default_value(option)
    key = key_of(option)
    return value if value is not None else _EXAMPLES.get(key, option.metavar or key.upper())


def has_example(option: click.Option) -> bool:
    """Return whether `example_value` can be used as it is."""
    return default_value(option) is not None or key_of(option) in _EXAMPLES


# -- the documentation --------------------------------------------------------------------------


def option_tables() -> str:
    """Return the options of every command as tables in Markdown."""
    parts = []
    for name, command in configured_commands().items():
        title = "cluster init" if name == "init" else name
        rows = [f"### `sarit {title}`, `[{name}]`", "", "| key | variable | default | what |", "|---|---|---|---|"]
        for option in settable(command):
            value = default_value(option)
            default = f"`{in_toml(value)}`" if value is not None else default_text(option) or "-"
            about = " ".join(help_text(option).split()).replace("|", "\\|").rstrip(",")
            allowed = allowed_values(option)
            about += f" Allowed: {allowed}." if allowed and not option.is_flag else ""
            rows.append(f"| `{key_of(option)}` | `{variable_of(option)}` | {default} | {about} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"
