"""Commands whose options have three forms: a flag, an environment variable, and a key of a file.

The option's declaration is the one place where it is named.  `--data-dir` is the variable SARIT_DATA_DIR and the key
`data-dir`.  The flag wins over the variable, the variable over the file, and the file over the default.  An empty
variable counts as none.

An error about a value says where the value is from.  So does an error about options that contradict each other, which
the node finds: the origin of each option that the message names follows it.
"""

from __future__ import annotations

import importlib
import math
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from sarit.cli.config_file import TABLES, ConfigFile, Setting, parse_config
from sarit.cli.option_groups import write_options
from sarit.cli.option_types import Host, Name, Text
from sarit.core.errors import SaritError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_CONFIG: Final = Path("/etc/sarit/sarit.toml")
PREFIX: Final = "SARIT_"
CONFIG_VARIABLE: Final = "SARIT_CONFIG"

_FILE: Final = "sarit.config_file"  # in `click.Context.meta`
_CHECK: Final = "sarit.config_check"
DEV: Final = "sarit.dev"  # whether defaults are those of `--dev`
PROFILE: Final = "sarit.profile"  # whether defaults are those of `--profile`
_ARGUMENTS: Final = "sarit.arguments"
_COMMANDS: Final = {
    "standalone": "sarit.cli.standalone:standalone",
    "store": "sarit.cli.store:store",
    "controller": "sarit.cli.controller:controller",
    "worker": "sarit.cli.worker:worker",
    "init": "sarit.cli.cluster:init",
}
_NAMED: Final = re.compile(r"--([a-z][a-z-]*[a-z])")
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f]")
_NOT_ONE_OF: Final = re.compile(r"'(.*?)' is not (?:one of|')")  # of click, which then names all
_OF_TEXT: Final = (Host, Name, Text, click.Choice, click.Path, click.types.StringParamType)
_LIKENESS: Final = 0.75  # of a variable to one that there is: a test's own SARIT_SEED is none


class ConfigError(click.ClickException):
    """A setting is wrong.  The message has a line for each fault, with its place."""

    exit_code = 2


class OneStart(click.Option):
    """An option for one start: it has no place in a file or in the environment."""


class Configured(click.Command):
    """A command whose options come from flags, variables and the file, as the head of the module says."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for option in settable(self):
            if option.envvar is None:
                option.envvar = variable_of(option)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        rows = [(key_of(param), row) for param in self.get_params(ctx) if (row := param.get_help_record(ctx))]
        write_options(formatter, rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does; errors say where a value is from, and what is allowed."""
        ctx.meta[_ARGUMENTS] = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            if isinstance(error.param, click.Option):
                raise _explained(error, error.param, ctx) from None
            raise
        if not ctx.resilient_parsing:
            for option in settable(self):
                if (wrong := _general_fault(ctx.params.get(option.name or ""))) is not None:
                    raise _explained(click.BadParameter(wrong, ctx, option), option, ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command as click does; an error that names options says where their values are from."""
        try:
            return super().invoke(ctx)
        except SaritError as error:
            error.args = (with_origins(str(error), ctx), *error.args[1:])
            raise


def settable(command: click.Command) -> list[click.Option]:
    """Return the options that can also be set in the file and by environment variables."""
    return [
        param
        for param in command.params
        if isinstance(param, click.Option) and param.name != "config" and not isinstance(param, OneStart)
    ]


def key_of(option: click.Parameter) -> str:
    """Return the key of an option in a file: `data-dir` for `--data-dir`."""
    return max(option.opts, key=len).lstrip("-")


def variable_of(option: click.Parameter) -> str:
    """Return the environment variable of an option."""
    if option.envvar is not None:
        return option.envvar if isinstance(option.envvar, str) else option.envvar[0]
    return PREFIX + key_of(option).replace("-", "_").upper()


def configured_commands() -> dict[str, click.Command]:
    """Table of the file -> the command that it is for."""
    found = {}
    for name in TABLES:
        module, _, attribute = _COMMANDS[name].partition(":")
        found[name] = getattr(importlib.import_module(module), attribute)
    return found


def start_check(ctx: click.Context) -> None:
    """Let the command, when it is invoked, check what it would run, and not run it."""
    ctx.meta[_CHECK] = True


def parsed_again(ctx: click.Context) -> click.Context:
    """Return the context of the same command line, with the file as it is now, for a check.  Raises ClickException."""
    again = ctx.command.make_context(ctx.command.name, list(ctx.meta[_ARGUMENTS]))
    start_check(again)
    return again


def is_check() -> bool:
    """Return whether the command that is invoked is to run nothing."""
    return bool(click.get_current_context().meta.get(_CHECK))


def used_file(ctx: click.Context) -> str | None:
    """Return the file of options of a command that was parsed."""
    file: ConfigFile | None = ctx.meta.get(_FILE)
    return None if file is None else file.path


# -- origins ------------------------------------------------------------------------------------


def origin_of(ctx: click.Context, option: click.Parameter) -> str:
    """Return where the value of an option is from: `command line`, a variable, FILE:LINE, or `default`."""
    source = ctx.get_parameter_source(option.name or "")
    if source is ParameterSource.ENVIRONMENT:
        return variable_of(option)
    if source is ParameterSource.DEFAULT_MAP:
        file: ConfigFile | None = ctx.meta.get(_FILE)
        setting = None if file is None else file.for_command(ctx.command.name or "").get(key_of(option))
        if file is not None and setting is not None:
            return file.place(setting.line)
        return "--profile" if ctx.meta.get(PROFILE) and not ctx.meta.get(DEV) else "--dev"
    return "command line" if source is ParameterSource.COMMANDLINE else "default"


def with_origins(message: str, ctx: click.Context) -> str:
    """Return a message with the origins of the options that it names, if one of them is from elsewhere than the
    flag."""
    options = {key_of(option): option for option in settable(ctx.command)}
    named = dict.fromkeys(name for name in _NAMED.findall(message) if name in options)
    origins = {name: origin_of(ctx, options[name]) for name in named}
    if not set(origins.values()) - {"command line", "default"}:
        return message
    return f"{message} ({', '.join(f'--{name}: {origin}' for name, origin in origins.items())})"


def _explained(error: click.BadParameter, option: click.Option, ctx: click.Context) -> click.ClickException:
    if isinstance(error, click.MissingParameter):
        return click.UsageError(
            f"--{key_of(option)} is missing: give it, set {variable_of(option)}, or write {key_of(option)} = … into "
            "the file of options (--config)",
            ctx,
        )
    origin = origin_of(ctx, option)
    text = fault(error.message, option)
    if origin in ("command line", "default"):
        return click.BadParameter(text, error.ctx or ctx, option)
    value = os.environ.get(origin, "")
    if value.startswith("tcp://"):
        text += "; Kubernetes sets such variables for services: set enableServiceLinks: false in the pod"
    return ConfigError(f"{origin}: {text}" if origin.startswith(PREFIX) else f"{origin}: {key_of(option)}: {text}")


def fault(message: str, option: click.Option) -> str:
    """Return what is wrong with a value, and what is allowed."""
    message = message.strip().rstrip(".")
    allowed = allowed_values(option)
    wrong = _NOT_ONE_OF.match(message)
    if wrong is not None and allowed is not None:
        message = f"{wrong[1]!r} is not allowed{_proposal(wrong[1].lower(), allowed.split(', '))}"
    return message if allowed is None else f"{message}; allowed: {allowed}"


def allowed_values(option: click.Option) -> str | None:
    """Return in words what a value may be; None: the type says it itself."""
    kind = option.type
    if isinstance(kind, click.Choice):
        return ", ".join(map(str, kind.choices))
    if option.is_flag:
        return "true, false"
    many = f"{option.nargs} times " if option.nargs != 1 else ""
    if isinstance(kind, click.IntRange | click.FloatRange):
        what = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        least, most = kind.min, kind.max
        if least is not None and most is not None:
            return f"{many}{what} from {least:g} to {most:g}" if most < 1e6 else f"{many}{what} from {least} to {most}"
        if least is not None:
            return f"{many}{what} above {least:g}" if kind.min_open else f"{many}{what}, {least:g} or more"
        return many + what
    if kind is click.INT or kind is click.FLOAT:
        return many + ("a whole number" if kind is click.INT else "a number")
    return None


def _general_fault(value: object) -> str | None:
    """Return what is wrong with a value that no option may have, or None."""
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, float) and not math.isfinite(part):
            return f"{part} is not a finite number"
        if isinstance(part, str | Path) and _CONTROL_CHARACTER.search(str(part)):
            return f"{str(part)!r} has a control character"
    return None


# -- the file -----------------------------------------------------------------------------------


def apply_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Take the settings of the file for the defaults of the command.  Raises ConfigError with every fault."""
    if value is None and DEFAULT_CONFIG.is_file() and not ctx.meta.get(DEV):
        value = DEFAULT_CONFIG
    if value is None or ctx.resilient_parsing:
        return value
    file = read_config(value)
    wrong = key_faults(file)
    command = ctx.command
    settings = file.for_command(command.name or "")
    defaults = {}
    for option in settable(command):
        setting = settings.get(key_of(option))
        if setting is not None:
            wrong += value_faults(file, setting, option, ctx)
            defaults[option.name or ""] = click_value(option, setting.value, strict=False)
    if wrong:
        raise ConfigError("\n".join(wrong))
    ctx.meta[_FILE] = file
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return value


def read_config(path: Path) -> ConfigFile:
    """Return the file of options.  Raises ConfigError: it cannot be read, or is not TOML."""
    try:
        return parse_config(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: it is not text in UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None


def key_faults(file: ConfigFile) -> list[str]:
    """Return a message for each table and each key that there is not, and for each that is there twice."""
    commands = configured_commands()
    keys = {name: {key_of(option) for option in settable(command)} for name, command in commands.items()}
    every = set().union(*keys.values())
    once = {key_of(param) for command in commands.values() for param in command.params if isinstance(param, OneStart)}
    wrong = [
        f"{file.place(line)}: there is no table [{table}]{_proposal(table, TABLES)}; there are "
        f"{', '.join(f'[{name}]' for name in TABLES)}, and keys on top are for all"
        for table, line in file.tables.items()
        if table not in TABLES
    ]
    for setting in file.settings:
        if setting.table and setting.table not in TABLES:
            continue
        place = f"{file.place(setting.line)}: "
        of = f"{setting.table} has" if setting.table else "there is"
        if setting.option in once:
            wrong.append(f"{place}{setting.key} is for one start: give it on the command line (--{setting.option})")
        elif setting.option not in (keys[setting.table] if setting.table else every):
            known = keys[setting.table] if setting.table else every | set(TABLES)
            wrong.append(f"{place}{of} no option {setting.key!r}{_proposal(setting.option, known)}")
    return wrong + file.repeated()


def value_faults(file: ConfigFile, setting: Setting, option: click.Option, ctx: click.Context) -> list[str]:
    """Return what is wrong with the value of a setting, if something is."""
    try:
        value = option.type_cast_value(ctx, click_value(option, setting.value))
    except click.BadParameter as error:
        text = fault(error.message, option)
    except ValueError as error:
        text = fault(str(error), option)
    else:
        found = _general_fault(value)
        if found is None:
            return []
        text = found
    return [f"{file.place(setting.line)}: {setting.key}: {text}"]


def click_value(option: click.Option, value: object, *, strict: bool = True) -> object:
    """Return a value of TOML as click takes it: text, so that no value is converted in silence (true to 1, 4.5 to 4).

    Raises ValueError: it is of a kind that this option cannot have; not if `strict` is false."""
    if option.is_flag:
        if strict and not isinstance(value, bool):
            raise ValueError(f"{_toml(value)} is not true or false")
        return value
    if option.nargs == 1 and not option.multiple:
        return _scalar(option, value, strict=strict)
    if not isinstance(value, list):
        if strict:
            raise ValueError(f"{_toml(value)} is not a list")
        return value
    return [_scalar(option, part, strict=strict) for part in value]


def _scalar(option: click.Option, value: object, *, strict: bool) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if strict and not (isinstance(value, str) or (is_number and _takes_numbers(option))):
        raise ValueError(f"{_toml(value)} is not text" + (" or a number" if _takes_numbers(option) else " in quotes"))
    return str(value)


def _takes_numbers(option: click.Option) -> bool:
    return not isinstance(option.type, _OF_TEXT)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return str(value) if isinstance(value, int | float | str) else repr(str(value))


def _proposal(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


# What clients and the commands for them read (docs/operations/security.md, docs/operations/configuration.md).
_OF_CLIENTS: Final = frozenset(
    PREFIX + name
    for name in (
        "CONTROLLER", "FORMAT", "CONTEXT", "USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA_FILE",
        "CERT_FILE", "KEY_FILE", "TRACES", "TRACE_RATIO",
    )
)  # fmt: skip


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a message for each variable that is like one of Sarit's and is none."""
    known = {variable_of(option) for command in configured_commands().values() for option in settable(command)}
    known |= {CONFIG_VARIABLE, *_OF_CLIENTS}
    ends = [name.removeprefix(PREFIX) for name in known]
    found = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            near = get_close_matches(name.removeprefix(PREFIX), ends, n=1, cutoff=_LIKENESS)
            if near:
                found.append(f"the variable {name} is not one of Sarit's: did you mean {PREFIX}{near[0]}?")
    return found


config_option: Callable[[Any], Any] = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar=CONFIG_VARIABLE,
    is_eager=True,
    expose_value=False,
    callback=apply_file,
    metavar="FILE",
    help="A TOML file with these options.  [default: SARIT_CONFIG, or /etc/sarit/sarit.toml if it exists]",
)
