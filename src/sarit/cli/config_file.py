"""The file of options: TOML, with the line of each setting, so that an error can name it.

Settings on top are for all commands, and each command takes those that it has an option for.  A table, as `[store]`, is
for one command and wins over the top.  A key is the name of the option without its dashes; inside, `-` and `_` are the
same.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import Final

TABLES: Final = ("standalone", "store", "controller", "worker", "init")

_LINE_OF_ERROR = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a file.  `table`: empty on top.  `line`: counted from 1."""

    table: str
    key: str
    value: object
    line: int

    @property
    def option(self) -> str:
        """The option that it names: dashes between words."""
        return self.key.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings of a file.  `tables`: those it has, with their lines, in order."""

    path: str
    settings: tuple[Setting, ...] = ()
    tables: dict[str, int] = field(default_factory=dict)

    def place(self, line: int) -> str:
        """Return how messages name a line."""
        return f"{self.path}:{line}"

    def for_command(self, command: str) -> dict[str, Setting]:
        """Option -> what holds for a command: its table wins over the top."""
        found = {setting.option: setting for setting in self.settings if not setting.table}
        found |= {setting.option: setting for setting in self.settings if setting.table == command}
        return found

    def repeated(self) -> list[str]:
        """Return a message for each option that one table sets twice, with `-` and with `_`."""
        first: dict[tuple[str, str], Setting] = {}
        wrong = []
        for setting in self.settings:
            before = first.setdefault((setting.table, setting.option), setting)
            if before is not setting:
                wrong.append(
                    f"{self.place(setting.line)}: {setting.key} is the same option as {before.key} in line "
                    f"{before.line}: keep one"
                )
        return wrong


def parse_config(text: str, path: str) -> ConfigFile:
    """Return the settings that the text of a file has.  Raises ValueError with file and line when it is not TOML."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: this is not TOML that an option has: too many levels of lists and tables") from None
    except tomllib.TOMLDecodeError as error:
        place = _LINE_OF_ERROR.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        reason = _LINE_OF_ERROR.sub("", str(error)).strip()
        raise ValueError(f"{path}:{line}: this is not TOML: {reason}") from None
    settings: list[Setting] = []
    tables: dict[str, int] = {}
    table = ""
    for line, statement in _statements(text):
        content = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            (table,) = content
            tables.setdefault(table, line)
            # [a.b] and [[a]] are nothing that an option has: they are settings that no option knows.
            settings += [Setting(table, key, value, line) for key, value in _inner(content[table])]
            continue
        for key, value in content.items():
            if not table and isinstance(value, dict) and key in TABLES:  # store.port = 1, store = {port = 1}
                tables.setdefault(key, line)
                settings += [Setting(key, name, inner, line) for name, inner in value.items()]
            else:
                settings.append(Setting(table, key, value, line))
    return ConfigFile(path, tuple(settings), tables)


def _inner(content: object) -> list[tuple[str, object]]:
    if isinstance(content, dict):
        return list(content.items())
    return [("[[…]]", content)]


def _statements(text: str) -> list[tuple[int, str]]:
    """Return the line and text of each statement of a valid document: a header, or a key with its value.

    A statement of several lines (a long string, a list) is complete when what there is of it is TOML by itself."""
    found = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        first = number
        if not lines[number].strip() or lines[number].lstrip().startswith("#"):
            number += 1
            continue
        statement = lines[number]
        while not _is_toml(statement):
            number += 1
            statement += "\n" + lines[number]
        found.append((first + 1, statement))
        number += 1
    return found


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
