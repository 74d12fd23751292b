"""`holdfast completion SHELL`: the script that has a shell complete commands and options. No server is asked."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

#: The variable by which the script asks this program; click names it after the program.
_VARIABLE = "_HOLDFAST_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what has SHELL complete commands, options and choices of `holdfast`.

    For this shell: eval "$(holdfast completion bash)", for all later ones that line in ~/.bashrc or ~/.zshrc; for
    fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    root = click.get_current_context().find_root()
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(root.command, {}, "holdfast", _VARIABLE).source())
