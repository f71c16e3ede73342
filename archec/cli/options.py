"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def config_option(function: _F) -> _F:
    """``--config FILE``, on every command."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The configuration; default: $ARCHEC_CONFIG, else ./config.yaml.",
    )(function)


def output_option(help: str) -> Callable[[_F], _F]:  # noqa: A002
    """``-o FILE``, for a file that is written whole or not at all."""
    return click.option(
        "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=help
    )


def json_option(function: _F) -> _F:
    """``--json``, on every reporting command."""
    return click.option("--json", "as_json", is_flag=True, help="JSON on stdout, everything else on stderr.")(function)
