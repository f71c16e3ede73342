"""What the commands share: options, printing JSON, lines on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from archec.cli.output import json_line, shown

__all__ = ["config_option", "echo_json", "json_option", "note"]

_F = TypeVar("_F", bound=Callable[..., Any])


def config_option(function: _F) -> _F:
    """``--config FILE``, on every command."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The configuration; else $ARCHEC_CONFIG, else ./config.yaml.",
    )(function)


def json_option(function: _F) -> _F:
    """``--json``, on every reporting command."""
    return click.option("--json", "as_json", is_flag=True, help="JSON on stdout, everything else on stderr.")(function)


def echo_json(value: object) -> None:
    """One JSON value on one line of stdout."""
    click.echo(json_line(value).encode("utf-8", "backslashreplace"))


def note(text: str) -> None:
    """A line on stderr, for whoever is there."""
    click.echo(f"archec: {shown(text)}", err=True)
