"""`sarit user`: the file of users."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from sarit.cli.options import Commands, format_option, show, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sarit.security.users import User

_PRIVATE = stat.S_IRUSR | stat.S_IWUSR

_file_option = click.option(
    "--users",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    envvar="SARIT_USERS",
    show_envvar=True,
    metavar="FILE",
    help="The file, as for `sarit standalone --users`; made if it is missing.",
)
_password_option = click.option(
    "--password-file",
    type=click.File("r"),
    metavar="FILE",
    help="Read the password from its first line, - for standard input.  [default: ask]",
)


@click.group(cls=Commands)
def user() -> None:
    """Change the file of users; servers read it again within seconds."""


@user.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="A role; may be given more than once.  admin may do everything.")
@_password_option
@_file_option
@format_option
def add(name: str, roles: tuple[str, ...], password_file: TextIO | None, path: Path, output: str) -> None:
    """Add user NAME."""
    from sarit.security.users import add_user

    with _changing(path) as users:
        users.update(add_user(users, name, _password(password_file), roles))
    show(output, {"user": name, "roles": sorted(roles)}, f"user {name} added to {path}")


@user.command()
@click.argument("name")
@_password_option
@_file_option
@format_option
def passwd(name: str, password_file: TextIO | None, path: Path, output: str) -> None:
    """Change the password of user NAME."""
    from sarit.security.users import change_password

    with _changing(path) as users:
        users.update(change_password(users, name, _password(password_file)))
    show(output, {"user": name}, f"user {name} has another password")


@user.command()
@click.argument("name")
@_file_option
@format_option
def delete(name: str, path: Path, output: str) -> None:
    """Delete user NAME.  Who reads or writes now goes on until the token expires."""
    from sarit.security.users import delete_user

    with _changing(path) as users:
        left = delete_user(users, name)
        users.clear()
        users.update(left)
    show(output, {"user": name, "deleted": True}, f"user {name} deleted")


@user.command("list")
@_file_option
@format_option
def list_users(path: Path, output: str) -> None:
    """List the users and their roles."""
    rows = [{"user": found.name, "roles": ",".join(sorted(found.roles))} for found in _read(path).values()]
    show_rows(output, rows, ["user", "roles"])


def _password(file: TextIO | None) -> str:
    if file is not None:
        return str(file.readline()).rstrip("\r\n")
    return str(click.prompt("password", hide_input=True, confirmation_prompt=True))


def _read(path: Path) -> Mapping[str, User]:
    from sarit.security.users import parse_users

    return parse_users(path.read_text(), str(path)) if path.exists() else {}


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, User]]:
    """Provide the users, and write them back as a whole, so that a server never reads half a file."""
    from sarit.security.users import format_users

    users = dict(_read(path))
    yield users
    number, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w") as file:
            file.write(format_users(users.values()))
            file.flush()
            os.fsync(file.fileno())
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _PRIVATE
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
