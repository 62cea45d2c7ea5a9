"""`sarit completion`: shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    Bash: eval "$(sarit completion bash)" in ~/.bashrc; zsh likewise in ~/.zshrc;
    fish: sarit completion fish > ~/.config/fish/completions/sarit.fish
    """
    from sarit.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(cli, {}, "sarit", "_SARIT_COMPLETE").source())
