"""``archec completion``: the script with which a shell completes commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from archec.terminal.output import LineWriter

COMPLETE = "_ARCHEC_COMPLETE"
"""The environment variable with which a shell requests completions."""
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash, in ~/.bashrc:         eval "$(archec completion bash)"
    zsh, in ~/.zshrc,
      after compinit:           eval "$(archec completion zsh)"
    fish, once:                 archec completion fish \\
                                  > ~/.config/fish/completions/archec.fish

    Example: archec completion bash
    """
    source = _SHELLS[shell](context.find_root().command, {}, "archec", COMPLETE).source()
    LineWriter().raw(source.strip("\n"))
