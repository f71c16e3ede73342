"""``archec access``: tokens of those who may read the collections, and the indexes of collections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click

from archec.access.feeding import add as add_rows
from archec.access.feeding import fed_path, parse_rows
from archec.access.feeding import remove as remove_rows
from archec.access.own import subjects_of
from archec.access.rules import Level, Rules
from archec.access.sorting import folder_files, sort_index
from archec.access.tokens import RIGHTS, Token, TokenFile, encoded, new_token, token_path
from archec.access.viewer import Viewer
from archec.access.warcindex import index_folder, index_path
from archec.archive.opening import opened
from archec.cli.common import config_option, json_option
from archec.config import Config, load
from archec.errors import Exit, UsageError
from archec.store.durable import atomic_stream, storage_errors
from archec.terminal.output import echo, echo_json, note
from archec.terminal.progress import meter_for
from archec.tist import iso, parse_when

_LEVELS = {Level.NOTHING: "nothing", Level.METADATA: "metadata", Level.CONTENT: "content"}


@click.group()
def access() -> None:
    """Make tokens for readers, and indexes of WARC files.

    Collections are served by 'archec serve'; without a token nobody sees anything of them, unless the configuration
    says so.

    Example: archec access index warcs
    """


@access.group()
def token() -> None:
    """Tokens: who may see what of which collections.

    Example: archec access token list
    """


@token.command()
@click.argument("name")
@click.option(
    "--rights",
    default="metadata,content",
    metavar="RIGHTS",
    help=f"What it allows: some of {','.join(RIGHTS)}; default: metadata,content.",
)
@click.option("--collection", "collections", multiple=True, metavar="NAME", help="Only this collection; repeatable.")
@click.option("--until", metavar="DATE", help="It is valid until this moment.")
@config_option
def create(name: str, rights: str, collections: tuple[str, ...], until: str | None, config_file: Path | None) -> None:
    """Make a token for NAME and print it.

    It is printed this once, for only its hash is kept. It goes into requests as 'Authorization: Bearer TOKEN', or
    as the password of HTTP Basic.

    Example: archec access token create reader --rights metadata
    """
    config = load(config_file)
    wanted = [right.strip() for right in rights.split(",") if right.strip()]
    unknown = sorted(set(collections) - {one.name for one in config.collections})
    if unknown:
        raise UsageError(f"there is no collection {unknown[0]}", hint=f"collections are set in {config.file}")
    known = _tokens(config)
    text, made = new_token(known, name, wanted, collections, parse_when(until) if until is not None else 0)
    _write(config, (*known, made))
    echo(text)


@token.command("list")
@json_option
@config_option
def list_tokens(as_json: bool, config_file: Path | None) -> None:
    """Show the tokens: their names, rights, collections and ends.

    Example: archec access token list
    """
    for one in _tokens(load(config_file)):
        if as_json:
            until = iso(one.until) if one.until else None
            collections = list(one.collections)
            value = {"name": one.name, "rights": list(one.rights), "collections": collections, "until": until}
            echo_json({**value, "created": iso(one.created)})
        else:
            where = ", ".join(one.collections) or "all collections"
            until = f", until {iso(one.until)}" if one.until else ""
            echo(f"{one.name}: {', '.join(one.rights)}; {where}{until}")


@token.command()
@click.argument("name")
@config_option
def revoke(name: str, config_file: Path | None) -> None:
    """Make the token of NAME invalid at once.

    What is being sent with it ends within seconds.

    Example: archec access token revoke reader
    """
    config = load(config_file)
    known = _tokens(config)
    kept = tuple(one for one in known if one.name != name)
    if len(kept) == len(known):
        raise UsageError(f"there is no token {name}", hint="'archec access token list' shows them")
    _write(config, kept)
    note(f"{name} is revoked")


@access.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@json_option
def sort(files: tuple[Path, ...], as_json: bool) -> None:
    """Sort index files (CDXJ or CDX) in byte order.

    Files that are not sorted cannot be searched. They may be compressed with gzip. A whole new file takes the place
    of the old one; repeated lines are left out. Of a folder, its index files.

    Example: archec access sort warcs.cdxj
    """
    for path in [file for given in files for file in folder_files(given)]:
        done = sort_index(path)
        if as_json:
            echo_json({"path": str(path), **done._asdict()})
        elif done.was_sorted:
            echo(f"{path}: was sorted ({done.lines:,} lines)")
        else:
            echo(f"{path}: sorted, {done.lines:,} lines, {done.repeated:,} of them repeated and left out")


@access.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(path_type=Path))
@json_option
def index(folders: tuple[Path, ...], as_json: bool) -> None:
    """Index folders of WARC and ARC files, with subfolders.

    Run it again to add what is new. The index of FOLDER lies beside it, as FOLDER.cdxj; 'index: warc+FOLDER' serves
    it. A file that is damaged is indexed up to the damage and named; the exit code is then 6.

    Example: archec access index warcs
    """
    damaged = False
    for folder in folders:
        with meter_for() as meter:
            done = index_folder(folder, meter)
        damaged = damaged or bool(done.damaged)
        if as_json:
            echo_json({"folder": str(folder), "index": str(index_path(folder)), **done._asdict()})
            continue
        for reason in done.damaged:
            note(reason)
        echo(f"{index_path(folder)}: {done.rows:,} rows of {done.files:,} files, {done.read:,} of them read now")
    if damaged:
        click.get_current_context().exit(Exit.CORRUPT)


def _rows_of(files: tuple[Path, ...]) -> Iterator[bytes]:
    """The lines of CDXJ for those of files, or of stdin where there are none."""
    for path in files or (Path("-"),):
        with click.open_file(str(path), "rb") as file:
            yield from parse_rows(line.rstrip(b"\r\n") for line in file)


def _fed(config_file: Path | None, name: str) -> Path:
    """Where the rows for a collection go. Raises UsageError."""
    config = load(config_file)
    collection = next((one for one in config.collections if one.name == name), None)
    if collection is None:
        raise UsageError(f"there is no collection {name}", hint=f"collections are set in {config.file}")
    path = fed_path(config, collection)
    if path is None:
        raise UsageError(f"collection {name} has no index of this machine", hint="name a folder or a .cdxj file in it")
    return path


_files_argument = click.argument(
    "files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, allow_dash=True, path_type=Path)
)


@access.command()
@click.argument("collection", metavar="COLLECTION")
@_files_argument
@json_option
@config_option
def add(collection: str, files: tuple[Path, ...], as_json: bool, config_file: Path | None) -> None:
    """Add lines of CDX or CDXJ to the index of a collection.

    Lines of files, or of stdin. They go into its first index file, of a folder into 'added.cdxj'; a server sees them
    at once. Where one of them is wrong nothing is added.

    Example: archec access add local new.cdxj
    """
    path = _fed(config_file, collection)
    count = add_rows(path, _rows_of(files))
    _show_fed(collection, path, "added", count, as_json=as_json)


@access.command()
@click.argument("collection", metavar="COLLECTION")
@_files_argument
@json_option
@config_option
def remove(collection: str, files: tuple[Path, ...], as_json: bool, config_file: Path | None) -> None:
    """Remove lines of CDX or CDXJ from the index of a collection.

    Lines of files, or of stdin. A row goes whose key, time, URL, file and offset are those of a line. Records in WARC
    files are not touched.

    Example: archec access remove local gone.cdxj
    """
    path = _fed(config_file, collection)
    count = remove_rows(path, _rows_of(files))
    _show_fed(collection, path, "removed", count, as_json=as_json)


def _show_fed(collection: str, path: Path, done: str, count: int, *, as_json: bool) -> None:
    if as_json:
        echo_json({"collection": collection, "index": str(path), done: count})
    else:
        echo(f"{path}: {count:,} rows {done}")


@access.command()
@click.argument("id", metavar="ID")
@click.option("--token", "name", metavar="NAME", help="Also what the token of NAME may see.")
@click.option("--address", default="", metavar="ADDRESS", help="For a client at this address.")
@json_option
@config_option
def explain(id: str, name: str | None, address: str, as_json: bool, config_file: Path | None) -> None:  # noqa: A002
    """Show what anybody may see of a URL or handle, and why.

    Example: archec access explain RePEc:smp:wpaper:2024-01
    """
    config = load(config_file)
    token = next((one for one in _tokens(config) if one.name == name), None) if name is not None else None
    if name is not None and token is None:
        raise UsageError(f"there is no token {name}", hint="'archec access token list' shows them")
    archive = opened(config) if config.store_path.exists() else nullcontext(None)
    with archive as it:
        subjects = subjects_of(it, id)
    rules = Rules(config.access.rules, config.access.open)
    for subject in subjects:
        decision = rules.decide(subject, address, time.time())
        viewer = Viewer(token, address, rules)
        rule = f"rule {decision.rule}" if decision.rule else "access.open"
        anybody, own = Viewer(None, address, rules).level(decision), viewer.level(decision)
        if as_json:
            value = {"url": subject.url, "anybody": anybody.name.lower(), "by": rule, "withdrawn": decision.withdrawn}
            own_value = {"token": own.name.lower()} if token is not None else {}
            echo_json({**value, "mime": subject.mime, "reason": decision.reason, **own_value})
            continue
        withdrawn = ", withdrawn" if decision.withdrawn else ""
        reason = f" ({decision.reason})" if decision.reason else ""
        echo(f"{subject.url}: {_LEVELS[anybody]}{withdrawn} for anybody, by {rule}{reason}")
        if token is not None:
            echo(f"    {_LEVELS[own]} for {token.name}")


def _tokens(config: Config) -> tuple[Token, ...]:
    return TokenFile(token_path(config)).tokens()


def _write(config: Config, tokens: tuple[Token, ...]) -> None:
    path = token_path(config)
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_stream(path, mode=0o600) as file:
        file.write(encoded(tokens))
