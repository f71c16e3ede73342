"""What the commands share: options, opening an archive, printing JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from archec.catalogue.interface import Catalogue
from archec.catalogue.open import open_catalogue
from archec.config import Config, load
from archec.errors import LockHeld, StorageFailed
from archec.gather.recover import CATCH_UP, catch_up, is_behind
from archec.store.layout import Layout, open_layout
from archec.store.lock import RunLock

__all__ = ["Archive", "config_option", "echo_json", "json_option", "opened"]

_F = TypeVar("_F", bound=Callable[..., Any])


def config_option(function: _F) -> _F:
    """``--config FILE``, on every command."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The configuration; else $ARCHEC_CONFIG, else ./config.yaml.",
    )(function)


def json_option(function: _F) -> _F:
    """``--json``, on every reporting command."""
    return click.option("--json", "as_json", is_flag=True, help="JSON on stdout, everything else on stderr.")(function)


def echo_json(value: object) -> None:
    """One JSON value on one line of stdout."""
    click.echo(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class Archive:
    """An open archive."""

    config: Config
    layout: Layout
    catalogue: Catalogue


@contextmanager
def opened(config_file: Path | None) -> Iterator[Archive]:
    """Opens the archive for reading.

    What a killed run left between journal and catalogue is applied first, if no run is under way.
    """
    config = load(config_file)
    layout = open_layout(config.store_path)
    catalogue = open_catalogue(config.database, base=config.base, create=True)
    try:
        try:
            if is_behind(layout, catalogue):
                with RunLock(layout, CATCH_UP):
                    catch_up(layout, catalogue)
        except (LockHeld, StorageFailed):
            click.get_current_context().meta["archec.behind"] = True
        yield Archive(config, layout, catalogue)
    finally:
        catalogue.close()
