"""``archec access``: tokens of readers, and the indexes of collections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from archec.access.feeding import add as add_rows
from archec.access.feeding import fed_path, locked, parse_rows
from archec.access.feeding import remove as remove_rows
from archec.access.gate import Viewer
from archec.access.index_files import lines_of
from archec.access.index_sorting import Unsortable, folder_files, sort_index
from archec.access.obi_source import subjects_of
from archec.access.rules import Level, Rules, address_of
from archec.access.tokens import RIGHTS, Token, TokenFile, encoded, new_token, token_path
from archec.access.warcindex import index_folder, index_path
from archec.archive.opening import opened
from archec.cli.common import (
    DATE,
    PATH,
    NamedPath,
    config_option,
    find_cited,
    is_citation,
    json_option,
    leave,
    pywb_option,
    report_options,
)
from archec.config import Config, load
from archec.config.pywb import load_with_pywb
from archec.errors import Exit, NotHeld, UsageError, storage_errors, unreadable
from archec.ids import is_fileset, normalise, typed
from archec.store.durable import atomic_stream
from archec.terminal.output import note, show, show_all
from archec.terminal.progress import meter_for
from archec.tist import iso
from archec.units import counted


@click.group()
def access() -> None:
    """Manage tokens for readers, and indexes of WARC files.

    Collections are served by 'archec serve'. Without a token nothing is visible, unless the configuration allows it.

    Example: archec access index warcs
    """


@access.group()
def token() -> None:
    """Manage tokens, which grant rights to collections.

    Example: archec access token list
    """


@token.command()
@click.argument("name")
@click.option(
    "--rights",
    default="metadata,content",
    metavar="RIGHTS",
    help=f"Rights: some of {','.join(RIGHTS)}; default: metadata,content.",
)
@click.option("--collection", "collections", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--until", type=DATE, default=0, help="Expiry date.")
@json_option
@pywb_option
@config_option
def create(
    name: str,
    rights: str,
    collections: tuple[str, ...],
    until: int,
    as_json: bool,
    pywb_file: Path | None,
    config_file: Path | None,
) -> None:
    """Create a token for NAME and print it.

    It is printed only once, because only its hash is stored. Clients send it as 'Authorization: Bearer TOKEN', or as
    the password of HTTP Basic.

    Example: archec access token create reader --rights metadata
    """
    config, _ = load_with_pywb(config_file, pywb_file)
    wanted = [right.strip() for right in rights.split(",") if right.strip()]
    unknown = sorted(set(collections) - {one.name for one in config.collections})
    if unknown:
        raise UsageError(f"there is no collection {unknown[0]}", hint=f"collections are set in {config.file}")
    with _alone(config) as path:
        known = _tokens(config)
        text, made = new_token(known, name, wanted, collections, until)
        _write(path, (*known, made))
    show({"token": text, "name": name}, text, as_json=as_json)


@token.command("list")
@json_option
@pywb_option
@config_option
def list_tokens(as_json: bool, pywb_file: Path | None, config_file: Path | None) -> None:
    """List the tokens: names, rights, collections, expiry dates.

    Example: archec access token list
    """
    tokens = _tokens(load_with_pywb(config_file, pywb_file)[0])
    show_all(tokens, _token_value, _token_lines, as_json=as_json, none="there are no tokens")


def _token_value(one: Token) -> dict[str, object]:
    return {
        "name": one.name, "rights": list(one.rights), "collections": list(one.collections) or None,
        "until": iso(one.until) if one.until else None, "created": iso(one.created),
    }  # fmt: skip


def _token_lines(one: Token) -> tuple[str]:
    until = f", until {iso(one.until)}" if one.until else ""
    return (f"{one.name}: {', '.join(one.rights)}; {', '.join(one.collections) or 'all collections'}{until}",)


@token.command()
@click.argument("name")
@pywb_option
@config_option
def revoke(name: str, pywb_file: Path | None, config_file: Path | None) -> None:
    """Revoke the token of NAME.

    It is refused immediately; responses in progress end within seconds.

    Example: archec access token revoke reader
    """
    config, _ = load_with_pywb(config_file, pywb_file)
    with _alone(config) as path:
        known = _tokens(config)
        kept = tuple(one for one in known if one.name != name)
        if len(kept) == len(known):
            raise UsageError(f"there is no token {name}", hint="'archec access token list' lists them")
        _write(path, kept)
    note(f"{name} is revoked")


@access.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=PATH)
@json_option
def sort(files: tuple[Path, ...], as_json: bool) -> None:
    """Sort index files (CDXJ or CDX) in byte order.

    Files that are not sorted cannot be searched. They may be compressed with gzip. Each file is replaced atomically;
    repeated lines are removed. A directory stands for its index files. A file that is damaged or no index is left as it
    is and reported; the exit code is then 6.

    Example: archec access sort warcs.cdxj
    """
    failed = False
    for path in [file for given in files for file in folder_files(given)]:
        try:
            done = sort_index(path)
        except Unsortable as error:
            note(error.message)
            failed = True
            continue
        lines = counted(done.lines, "line")
        now = f"sorted, {lines}, {done.repeated:,} of them repeated and removed"
        text = f"{path}: {f'was sorted already ({lines})' if done.was_sorted else now}"
        show({"path": str(path), **done._asdict()}, text, as_json=as_json)
    if failed:
        leave(Exit.CORRUPT)


@access.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=PATH)
@json_option
def index(folders: tuple[Path, ...], as_json: bool) -> None:
    """Index directories of WARC and ARC files, recursively.

    Run it again to add new files. The index of DIRECTORY is DIRECTORY.cdxj, next to it; 'index: warc+DIRECTORY' serves
    it. A damaged file is indexed up to the damage and reported; the exit code is then 6.

    Example: archec access index warcs
    """
    damaged = False
    for folder in folders:
        with meter_for() as meter:
            done = index_folder(folder, meter)
        damaged = damaged or bool(done.damaged)
        for reason in () if as_json else done.damaged:
            note(f"{folder}/{reason}")
        value = {"folder": str(folder), "index": str(index_path(folder)), **done._asdict()}
        files = f"{counted(done.files, 'file')}, {done.read:,} of them read now"
        show(value, f"{index_path(folder)}: {counted(done.rows, 'row')} of {files}", as_json=as_json)
    if damaged:
        leave(Exit.CORRUPT)


def _rows_of(files: tuple[Path, ...]) -> Iterator[bytes]:
    """The lines of files, or of stdin if there are none, converted to CDXJ."""
    for path in files or (Path("-"),):
        with click.open_file(str(path), "rb") as file:
            try:
                yield from parse_rows(lines_of(file))
            except UsageError as error:
                raise UsageError(f"{path}: {error.message}") from error
            except OSError as error:
                raise unreadable(path, error) from error


def _feed(
    change: Callable[[Path, Iterator[bytes]], int],
    done: str,
    name: str,
    files: tuple[Path, ...],
    config_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Changes the index of a collection by the rows in files, and prints how many were ``done``."""
    config = load(config_file)
    collection = next((one for one in config.collections if one.name == name), None)
    if collection is None:
        raise UsageError(f"there is no collection {name}", hint=f"collections are set in {config.file}")
    path = fed_path(config, collection)
    if path is None:
        raise UsageError(f"collection {name} has no local index", hint="configure a directory or a .cdxj file for it")
    count = change(path, _rows_of(files))
    value = {"collection": name, "index": str(path), done: count}
    show(value, f"{path}: {counted(count, 'row')} {done}", as_json=as_json)


_files_argument = click.argument(
    "files", nargs=-1, metavar="[FILE]...",
    type=NamedPath(exists=True, dir_okay=False, allow_dash=True),
)  # fmt: skip


@access.command()
@click.argument("collection", metavar="COLLECTION")
@_files_argument
@report_options
def add(collection: str, files: tuple[Path, ...], as_json: bool, config_file: Path | None) -> None:
    """Add lines of CDX or CDXJ to the index of a collection.

    Reads files, or stdin. The lines are added to the first index file of the collection, in a directory to
    'added.cdxj'; servers use them immediately. If any line is invalid, nothing is added.

    Example: archec access add local new.cdxj
    """
    _feed(add_rows, "added", collection, files, config_file, as_json=as_json)


@access.command()
@click.argument("collection", metavar="COLLECTION")
@_files_argument
@report_options
def remove(collection: str, files: tuple[Path, ...], as_json: bool, config_file: Path | None) -> None:
    """Remove lines of CDX or CDXJ from the index of a collection.

    Reads files, or stdin. A row is removed if its key, time, URL, file and offset equal those of a line. Records in
    WARC files are not changed.

    Example: archec access remove local gone.cdxj
    """
    _feed(remove_rows, "removed", collection, files, config_file, as_json=as_json)


@access.command()
@click.argument("id", metavar="ID")
@click.option("--token", "name", metavar="NAME", help="Also show what the token of NAME allows.")
@click.option("--address", default="", metavar="ADDRESS", help="For a client at this address.")
@report_options
def explain(id: str, name: str | None, address: str, as_json: bool, config_file: Path | None) -> None:  # noqa: A002
    """Show what is public of a URL, handle or fileset, and why.

    Example: archec access explain RePEc:smp:wpaper:2024-01
    """
    config = load(config_file)
    token = next((one for one in _tokens(config) if one.name == name), None) if name is not None else None
    if name is not None and token is None:
        raise UsageError(f"there is no token {name}", hint="'archec access token list' lists them")
    wanted = typed(id)
    if address and address_of(address) is None:
        raise UsageError(f"--address {address} is not an IP address", hint="give one like 192.0.2.1 or 2001:db8::1")
    has_archive = config.store_path.exists()
    archive = opened(config) if has_archive else nullcontext(None)
    with archive as it:
        if it is not None and is_citation(id):
            try:
                wanted = find_cited(it, id)[0].id
            except NotHeld:
                from archec.fileset.finding import identifier_of  # slow to import, and rarely needed

                if identifier_of(id) is not None:
                    raise
        try:
            subjects = subjects_of(it, wanted)
        except UsageError as error:
            raise UsageError(f"{id[:200]!r} is not a URL, handle, or fileset that is held") from error
    rules = Rules(config.access.rules, config.access.open)
    for subject in subjects:
        decision = rules.decide(subject, address, time.time())
        depends = rules.on_address(subject, time.time()) if not address else 0
        shown = normalise(wanted)[1] if is_fileset(wanted) else subject.handle or subject.url
        rule = f"rule {decision.rule}" if decision.rule else "access.open"
        anybody = Viewer(None, address, rules).level(decision)
        is_by_oai = bool(subject.handle and subject.noted) and anybody < Level.CONTENT and config.oai.items != "fobi"
        value = {
            "id": shown, "url": subject.url, "anybody": anybody.name.lower(), "by": rule, "mime": subject.mime,
            "reason": decision.reason, "withdrawn": decision.withdrawn, "held": bool(subject.noted),
        }  # fmt: skip
        withdrawn = ", withdrawn" if decision.withdrawn else ""
        reason = f" ({decision.reason})" if decision.reason else ""
        lines = [f"{shown}: {anybody.name.lower()} is public{withdrawn}, by {rule}{reason}"]
        if depends:
            value["depends_on_address"] = f"rule {depends}"
            lines.append(f"    rule {depends} depends on the address: give --address")
        if is_by_oai:
            value["oai"] = True
            lines.append("    /oai gives the template to everybody: access rules are for collections only")
        if not subject.noted:
            lack = "the obi store holds nothing of it" if has_archive else "there is no archive"
            lines.append(f"    {lack}; rows of indexes are judged by their own time and media type")
        if token is not None:
            is_valid = token.is_valid(time.time())
            own = Viewer(token, address, rules).level(decision) if is_valid else Level.NOTHING
            value |= {"token": own.name.lower(), "collections": list(token.collections) or None}
            where = ", ".join(token.collections) or "all collections"
            lines.append(f"    {own.name.lower()} for {token.name}, in {where}" + ("" if is_valid else " (expired)"))
        show(value, *lines, as_json=as_json)


def _tokens(config: Config) -> tuple[Token, ...]:
    return TokenFile(token_path(config)).tokens()


@contextmanager
def _alone(config: Config) -> Iterator[Path]:
    """The path of the token file, which only this process changes now."""
    path = token_path(config)
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        yield path


def _write(path: Path, tokens: tuple[Token, ...]) -> None:
    with atomic_stream(path, mode=0o600) as file:
        file.write(encoded(tokens))
