"""Write docs/reference/cli.md, the reference of the command line, from the declarations of the commands.

python -m tools.cli_page            write it
python -m tools.cli_page --check    exit 1 when the page is stale
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sarit.cli.configured_commands import Configured, key_of
from sarit.cli.main import cli
from sarit.cli.option_groups import GROUPS
from sarit.cli.options import controller_option, format_option

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
HEAD: Final = """\
# Command line

Every command of `sarit`, with its options, their defaults and their environment variables. `make generate` writes this
page from the code; `sarit COMMAND --help` prints the same. How events are read and written at the shell:
[Events at the shell](../guides/shell.md). The options of servers also have keys in a file:
[Configuration](../operations/configuration.md). Exit codes: 0 done, 1 the work failed, 2 the command line is wrong or
needs an extra, 130 interrupted.
"""
_COMMON: Final = "## Options of most commands\n\nThe commands below name them, and this table describes them.\n"
_WIDTH: Final = 120
_WRITTEN_DEFAULT: Final = re.compile(r"\s*\[default: (.*)\]$", re.DOTALL)
_BAR: Final = "&#124;"
_CODE: Final = re.compile(r"(`[^`]*`)")
_HEAD_OF_TABLE: Final = ["| option | what | default | variable |", "|---|---|---|---|"]


@controller_option
@format_option
def _with_common_options() -> None:
    """Carry the options that most commands have."""


def _escaped(text: str) -> str:
    """Return a text of one line as Markdown for a cell of a table; what is in backticks stays code."""
    pieces = _CODE.split(" ".join(text.split()))
    escaped = (piece if piece.startswith("`") else re.sub(r"([\\*<>\[\]])", r"\\\1", piece) for piece in pieces)
    return "".join(escaped).replace("|", _BAR)


def _code(text: str) -> str:
    """Return a text as code in a cell of a table; a `|` in backticks would end the cell, or keep its backslash."""
    if "|" in text:
        return f"<code>{escape(text).replace('|', _BAR)}</code>"
    return f"`{text}`" if text else ""


def _row(option: click.Option, ctx: click.Context) -> str | None:
    """Return the row of an option, or None for a hidden one."""
    record = option.get_help_record(ctx)
    if record is None:
        return None
    extra = option.get_help_extra(ctx)
    text = inspect.cleandoc(option.help or "")
    written = _WRITTEN_DEFAULT.search(text)
    default = _escaped(written[1]) if written else _code(extra.get("default", ""))
    if extra.get("required"):
        default = "required"
    what = _escaped(_WRITTEN_DEFAULT.sub("", text))
    if "range" in extra:
        what = f"{what} {_code(extra['range'])}".strip()
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    return f"| {_code(record[0])} | {what} | {default} | {', '.join(map(_code, variables))} |"


def _options(command: click.Command, ctx: click.Context, common: dict[str, str]) -> Iterator[str]:
    """Yield the paragraphs about the options of a command: tables, and the names of common ones."""
    group_of = {key: group for group, keys in GROUPS.items() for key in keys} if isinstance(command, Configured) else {}
    tables: dict[str, list[str]] = {group: [] for group in ("", *GROUPS)}
    named = []
    for param in command.params:
        row = _row(param, ctx) if isinstance(param, click.Option) else None
        if row is None:
            continue
        if row in common:
            named.append(common[row])
        else:
            tables[group_of.get(key_of(param), "")].append(row)
    for title, rows in tables.items():
        if rows:
            yield "\n".join([*([f"{title}:\n"] if title else []), *_HEAD_OF_TABLE, *rows])
    if named:
        names = [_code(name) for name in named]
        joined = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        yield f"And {joined}: [options of most commands](#options-of-most-commands)."


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; after a `\\b` lines stay as they are."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```"
        else:
            plain = _escaped(paragraph).replace(_BAR, "|")
            yield textwrap.fill(plain, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _below(group: click.Group, ctx: click.Context) -> str:
    """Return the table of the commands of a group, with the first paragraph of the help of each."""
    rows = ["| command | what |", "|---|---|"]
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None and not command.hidden:
            path = f"{ctx.command_path} {name}"
            what = inspect.cleandoc(command.help or "").partition("\n\n")[0]
            rows.append(f"| [{path}](#{path.replace(' ', '-')}) | {_escaped(what)} |")
    return "\n".join(rows)


def _commands(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and those below it: the words a user types, the command and its context."""
    ctx = click.Context(command, info_name=name, parent=parent)
    yield ctx.command_path, command, ctx
    if isinstance(command, click.Group):
        for below in command.list_commands(ctx):
            found = command.get_command(ctx, below)
            if found is not None and not found.hidden:
                yield from _commands(found, below, ctx)


def page() -> str:
    """Return the page's text."""
    sample = click.command()(_with_common_options)
    ctx = click.Context(sample)
    rows = {_row(param, ctx): param.opts[0] for param in sample.params if isinstance(param, click.Option)}
    common = {row: name for row, name in rows.items() if row is not None}
    parts = [HEAD.rstrip(), _COMMON.rstrip(), "\n".join([*_HEAD_OF_TABLE, *common])]
    for path, command, ctx in _commands(cli, "sarit", None):
        parts.append("#" * min(1 + max(1, path.count(" ")), 4) + f" {path}")
        parts.append(f"```text\n{path} {' '.join(command.collect_usage_pieces(ctx))}\n```")
        parts += _paragraphs(command.help or "")
        if isinstance(command, click.Group):
            parts.append(_below(command, ctx))
        parts += _options(command, ctx, common)
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the page, or check it."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != wanted:
            sys.exit("docs/reference/cli.md is stale: run make generate")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
