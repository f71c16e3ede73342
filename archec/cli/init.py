"""``archec init``: creates a configuration, an empty store with its descriptor, and a data directory."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import redact
from archec.cli.common import DIRECTORY, FILE
from archec.config import DEFAULT_FILE, Config, as_yaml, load, parse, plain_path, with_environment
from archec.errors import CatalogueError, ConfigError, UsageError, failure
from archec.store.layout import create
from archec.terminal.output import note


@click.command()
@click.argument("directory", type=DIRECTORY, default=".")
@click.option("--config", "config_file", type=FILE, help="Use this configuration instead of writing one.")
@click.option(
    "--fanout",
    type=click.Choice(["0", "256"]),
    default="0",
    show_default=True,
    help="Subdirectories per tist: 256 for an archive of all of RePEc. Cannot be changed later.",
)
@click.option("--database", metavar="URL", help="The catalogue, e.g. mongodb://localhost/archec.")
def init(directory: Path, config_file: Path | None, fanout: str, database: str | None) -> None:
    """Create an archive in DIRECTORY (default: here).

    Creates config.yaml, the empty obi store archive/ with its descriptor, and data/ with tarballs/ and current/.
    Existing files are not changed; an existing archive is refused.

    Example: archec init my-archive
    """
    directory = plain_path(directory)
    path = plain_path(config_file) if config_file is not None else directory / DEFAULT_FILE
    try:
        text = "" if path.exists() else as_yaml({"database": database} if database else None)
        if database and not text:
            raise UsageError(f"{path} already exists", hint="set 'database' in it")
        if database and redact(database) != database:
            hint = "leave --database out, and set the environment variable ARCHEC_DATABASE for all commands"
            raise UsageError(f"--database: {redact(database)} has a password, which {path} would keep", hint=hint)
        config = with_environment(_checked(text, path)) if text else load(path)
        if (config.store_path / "layout.json").exists():
            hint = f"use it with --config {quote(str(path))}, or give another directory"
            raise UsageError(f"{config.store_path} is already an archive", hint=hint)
        _refuse_taken(config)
        directory.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text, encoding="utf-8")
        config.path(config.tarballs).mkdir(parents=True, exist_ok=True)
        if not config.data_path.exists() and not config.data_path.is_symlink():
            config.data_path.mkdir(parents=True)
        _create_catalogue(config)
        create(config.store_path, fanout=int(fanout))  # last: until then, init can be repeated
    except OSError as error:
        raise failure(error, error.filename or directory) from error
    click.echo(f"Created an archive in {directory}.")
    click.echo(f"  {path}: set fetch.contact so that webmasters can reach you")
    click.echo(f"  {config.data_path}: put the RePEc data set here, or a link to it")
    click.echo(f"Then run: archec gather --config {quote(str(path))}")


def _create_catalogue(config: Config) -> None:
    try:
        open_catalogue(config.database, base=config.base, create=True).close()
    except CatalogueError as error:
        note(f"warning: {error}")
        note("    the first run creates the catalogue")


def _refuse_taken(config: Config) -> None:
    """Raises UsageError if the database holds the catalogue of another archive."""
    try:
        with open_catalogue(config.database, base=config.base, read_only=True) as catalogue:
            run = catalogue.position().run
    except CatalogueError:  # there is none, or it does not respond
        return
    if run:
        hint = "set another 'database'; for an archive with its journals use 'archec rebuild'"
        raise UsageError(f"{catalogue.url} holds the catalogue of another archive (run {run})", hint=hint)


def _checked(text: str, path: Path) -> Config:
    """The configuration to write. Raises UsageError before anything is created if its database cannot be used."""
    try:
        config = parse(text, path)
    except ConfigError as error:
        raise UsageError(f"--{error.message.removeprefix(f'{path}: ')}", hint=error.hint) from error
    if config.database.startswith("mongodb:"):
        from archec.catalogue.mongo_server import connect  # here, because it is slow to import

        connect(config.database).client.close()
    return config
