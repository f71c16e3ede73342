"""``archec fileset``: data sets behind landing pages."""

from __future__ import annotations

import select
import shlex
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from msgspec.structs import asdict, replace

from archec.archive.budget import Budget
from archec.catalogue.model import Ingest
from archec.cli.common import (
    DIRECTORY,
    DURATION,
    PATH,
    SIZE,
    config_option,
    leave,
    opened,
    report_options,
    warn_if_root,
    warn_if_unknown,
)
from archec.config import load
from archec.errors import ArchecError, Exit, UsageError, storage_errors
from archec.export.units import selection
from archec.fileset import json_lines
from archec.fileset.candidates import candidates as find_candidates
from archec.fileset.context import IngestOptions
from archec.fileset.export import WRITERS
from archec.fileset.export import export as write_export
from archec.fileset.fields import clean
from archec.fileset.json_lines import IngestResult
from archec.fileset.lookup import (
    REMEDY,
    all_filesets,
    changes_of,
    failed_ingests,
    find_fileset,
    verify_fileset,
)
from archec.fileset.manifest import Manifest, in_pieces, is_whole, not_held
from archec.fileset.model import IngestRequest, IngestStrategy
from archec.fileset.platforms.base import item_name
from archec.fileset.platforms.registry import Registry
from archec.fileset.run import Line, exit_code, run_ingest
from archec.fileset.sql import Dialect, statements
from archec.fileset.status import BadRequest, Status
from archec.terminal.output import LineWriter, ReaderGone, echo_json, escaped_json, note, show_all
from archec.terminal.progress import meter_for
from archec.tist import iso
from archec.units import counted, human_size


@click.group()
def fileset() -> None:
    """Archive data sets behind landing pages, e.g. of Zenodo.

    Also of Dataverse, Figshare, openICPSR and others.

    Example: archec fileset ingest doi:10.5281/zenodo.3904280
    """


@fileset.command()
@click.argument("urls", nargs=-1, metavar="[URL|DOI|HANDLE]...")
@click.option(
    "--requests", type=click.File("rb"), metavar="FILE",
    help="Read requests from FILE (-: stdin), one JSON object per line.",
)  # fmt: skip
@click.option(
    "--strategy",
    type=click.Choice([one.value for one in IngestStrategy]),
    metavar="STRATEGY",
    help=f"Override the choice by size limits: {', '.join(IngestStrategy)}.",
)
@click.option("--force", is_flag=True, help="Fetch files again that are already held.")
@click.option("--direct", is_flag=True, help="Also ingest URLs that are data files themselves.")
@click.option("--follow-concept", is_flag=True, help="Ingest the newest version of a concept id.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files whose path matches; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip files whose path matches; may be repeated.")
@click.option("--to", type=PATH, metavar="DIR", help="Also copy the files to DIR/ITEM/.")
@click.option(
    "--file-results", type=click.File("ab", lazy=False), metavar="FILE",
    help="Write results of single data files to FILE (-: stdout).",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=1, metavar="N", help="Number of data sets in parallel; default 1."
)
@click.option("--wait", is_flag=True, help="Wait for another run to end instead of exiting with 4.")
@click.option("--dry-run", is_flag=True, help="Show manifests, sizes and strategies; store nothing.")
@click.option("--max-files", type=click.IntRange(1, 100_000), metavar="N", help="Instead of fileset.max_file_count.")
@click.option("--max-total", type=SIZE, help="Instead of fileset.max_total_size, e.g. 200GiB.")
@click.option("--max-time", type=DURATION, default=0, help="Stop after this time, e.g. 6h.")
@config_option
def ingest(
    urls: tuple[str, ...],
    requests: BinaryIO | None,
    strategy: str | None,
    force: bool,
    direct: bool,
    follow_concept: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    to: Path | None,
    file_results: BinaryIO | None,
    jobs: int,
    wait: bool,
    dry_run: bool,
    max_files: int | None,
    max_total: int | None,
    max_time: float,
    config_file: Path | None,
) -> None:
    """Ingest data sets; print one JSON result per line.

    The manifest comes from the platform's API; every file is fetched, verified and stored in the obi store. Files that
    are already held are not fetched again, and interrupted downloads are resumed.

    Example: archec fileset ingest doi:10.5281/zenodo.3904280
    """
    if not urls and requests is None:
        raise UsageError("nothing to ingest", hint="give URLs or DOIs, or requests with --requests FILE")
    config = load(config_file)
    if not dry_run:
        warn_if_root(config)
    options = IngestOptions(
        IngestStrategy(strategy) if strategy else None,
        force, direct, follow_concept, include, exclude, dry_run, max_files, max_total,
    )  # fmt: skip
    kept: list[str] = []

    def emit(result: IngestResult, file: IngestResult | None) -> None:
        try:
            _write(sys.stdout.buffer, json_lines.encode(result))
        except ReaderGone as error:  # after which no exit code could say what became of the requests
            raise ArchecError("nobody reads the results on stdout") from error
        if result.fileset is not None and not dry_run and result.status != Status.PLATFORM_GONE:
            kept.append(result.fileset)
        if file is not None and file_results is not None:
            with storage_errors(file_results.name):
                _write(file_results, json_lines.encode(file))

    lines = [(clean(url), IngestRequest(clean(url))) for url in urls]
    with meter_for() as meter:
        counter = run_ingest(
            config, lines, options, meter, emit, jobs=jobs, wait=wait, budget=Budget(seconds=max_time),
            stream=_lines(requests) if requests is not None else (),
        )  # fmt: skip
    if not counter.statuses:
        note("there were no requests")
    if to is not None and kept:
        with opened(config) as archive:
            for name in dict.fromkeys(kept):
                held = find_fileset(archive, name)
                manifest = held.manifest
                if manifest.bundle is None:
                    manifest = replace(manifest, manifest=tuple(filter(options.selection.wants, manifest.manifest)))
                names = dict.fromkeys((manifest.platform_id, manifest.version))  # Zenodo's are the same
                item = item_name(manifest.platform_domain, *names)
                write_export(archive, held._replace(manifest=manifest), "folder", to / item, again=True)
    leave(exit_code(counter.statuses, dry_run=dry_run))


def _lines(source: BinaryIO) -> Iterator[Line]:
    """The requests in a file."""
    for line in _split(source):
        plain = line if len(line) > json_lines.LONGEST_LINE else line.removeprefix(BOM_UTF8).strip()
        if not plain:
            continue
        text = plain.decode("utf-8", "replace")
        try:
            yield text, json_lines.request_of(plain)
        except BadRequest as problem:
            yield text, problem


def _split(source: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file as they arrive, but no more of one than shows that it is too long. It is read without
    its buffer, whose lock a thread that waits for a silent pipe would still hold at exit."""
    raw, line = getattr(source, "raw", source), bytearray()
    while (data := raw.read(1 << 16)) != b"":
        if data is None:  # whoever shares the pipe has made it non-blocking
            select.select([raw], [], [])
            continue
        end, *others = data.split(b"\n")
        line += end[: json_lines.LONGEST_LINE + 1 - len(line)]
        for other in others:
            yield bytes(line)
            line = bytearray(other)
    yield bytes(line)


def _write(target: BinaryIO, pieces: Iterator[bytes]) -> None:
    """Writes JSON that comes in pieces as a line."""
    for piece in pieces:
        target.write(escaped_json(piece.decode()).encode())
    target.write(b"\n")
    target.flush()


# -- listing ----------------------------------------------------------------------------------------


@fileset.command(name="list")
@click.option("--all", "with_failed", is_flag=True, help="Also list the ingests of data sets of which nothing is held.")
@report_options
def list_(with_failed: bool, as_json: bool, config_file: Path | None) -> None:
    """List all filesets: id, title, versions, files, size.

    With --all also what was requested, but is not held: the URL, the status and when it is due again.

    Example: archec fileset list --all
    """
    out = LineWriter()
    with opened(config_file) as archive:
        for row in all_filesets(archive):
            files = counted(row["files"], "selected file" if row["selected"] else "file")
            held = f"{row['files_held']:,} of {files}, {human_size(row['size'])}"
            out.show(
                dict(row),
                f"{row['id']}{'' if row['held'] else '  (lost)'}",
                *([f"    {row['title']}"] if row["title"] else []),
                f"    {held}; {counted(row['versions'], 'version')}, last noted {row['noted_time']}",
                as_json=as_json,
            )
        for ingest in failed_ingests(archive.catalogue) if with_failed else ():
            value = {"id": None, **msgspec.to_builtins(ingest), "due": ingest.due or None}
            due = f", due {iso(ingest.due)}" if ingest.due else ""
            state = f"    {ingest.status} {iso(ingest.tist)}{due}"
            out.show(value, f"{ingest.base_url}  (not held)", state, as_json=as_json)
    if not out.any and not as_json:
        note("no filesets are held")


class _ShownManifest(Manifest, frozen=True, kw_only=True):
    id: str
    lost: int | None
    noted: int
    noted_time: str
    sha256: str
    ingests: list[Ingest]


@fileset.command()
@click.argument("name", metavar="ID")
@report_options
def show(name: str, as_json: bool, config_file: Path | None) -> None:
    """Show one fileset: its files, with checksums and statuses.

    ID is a DOI, an ingested URL, or fileset:PLATFORM:DOMAIN:WORK, each optionally with @VERSION.

    Example: archec fileset show doi:10.5281/zenodo.3904280
    """
    with opened(config_file) as archive:
        held = find_fileset(archive, name)
        manifest, lines = held.manifest, LineWriter()
        ingests = [ingest for ingest in archive.catalogue.ingests() if ingest.fileset == held.obi.id]
        if as_json:
            value = _ShownManifest(
                **asdict(manifest), id=_id(manifest), lost=held.obi.history.lost,
                noted=held.tist, noted_time=iso(held.tist), sha256=held.state, ingests=ingests,
            )  # fmt: skip
            _write(sys.stdout.buffer, in_pieces(value, value.__struct_fields__, msgspec.json.encode))
            return
        lines.text(_id(manifest))
        if manifest.title:
            lines.text(f"    {manifest.title}")
        lines.text(f"    noted {iso(held.tist)} ({held.tist}), sha256 of the manifest {held.state}")
        if (lost := held.obi.history.lost) is not None:
            lines.text(f"    lost {iso(lost)} ({lost}): {held.obi.notes[lost].reason}")
        for one in ingests:
            message = f"; {one.message}" if one.message else ""
            lines.text(f"    requested as {one.base_url}{_globs(one)}: {one.status} {iso(one.tist)}{message}")
        for file in manifest.manifest:
            size = "" if file.size is None else human_size(file.size)
            lines.text(f"  {file.status}  {size}  {file.path}")


def _globs(ingest: Ingest) -> str:
    """The options by which files were selected."""
    given = ((name, glob) for name in ("include", "exclude") for glob in ingest.options.get(name, ()))
    return "".join(f" --{name} {shlex.quote(glob)}" for name, glob in given)


def _id(manifest: Manifest) -> str:
    return f"{manifest.fileset}{'@' + manifest.version if manifest.version else ''}"


@fileset.command()
@click.argument("name", metavar="ID")
@report_options
def verify(name: str, as_json: bool, config_file: Path | None) -> None:
    """Compare the held files of a fileset with its manifest.

    Reads all of them. Exits with 6 if one does not match. With --json, prints one object per line: the findings, and
    at the end {"type": "summary", ...}.

    Example: archec fileset verify doi:10.5281/zenodo.3904280
    """
    out, wrong = LineWriter(), 0
    with opened(config_file) as archive:
        held = find_fileset(archive, name)
        for finding in verify_fileset(archive, held):
            wrong += 1
            out.show({"type": "finding", **finding._asdict()}, f"{finding.path}: {finding.message}", as_json=as_json)
        files = held.manifest.manifest
        there = sum(map(is_whole, files))
    counts = {"files": len(files), "held": there, "not_held": len(files) - there, "wrong": wrong}
    total = f"{counted(len(files), 'file')}, {there:,} held, {len(files) - there:,} not held, {wrong:,} wrong"
    out.show({"type": "summary", **counts}, total, as_json=as_json)
    if wrong:
        note(REMEDY)
    leave(Exit.CORRUPT if wrong else Exit.DONE)


@fileset.command()
@click.argument("name", metavar="ID")
@report_options
def changes(name: str, as_json: bool, config_file: Path | None) -> None:
    """List the changes between versions of a fileset.

    Shows files added, removed and changed, and losses and returns of the fileset.

    Example: archec fileset changes doi:10.5281/zenodo.3904280
    """
    with opened(config_file) as archive:
        show_all(
            changes_of(archive, find_fileset(archive, name).obi),
            lambda change: change._asdict() | {"time": iso(change.tist)},
            lambda one: ["  ".join(filter(None, (iso(one.tist), one.version, one.what, one.path)))],
            as_json=as_json,
        )


@fileset.command()
@click.argument("name", metavar="ID")
@click.option(
    "--as", "form", type=click.Choice(list(WRITERS)), required=True, metavar="FORM", help=f"{', '.join(WRITERS)}."
)
@click.option("--fetch", is_flag=True, help="With --as bagit: write fetch.txt instead of the data.")
@click.argument("folder", type=DIRECTORY, metavar="DIR")
@report_options
def export(name: str, form: str, fetch: bool, folder: Path, as_json: bool, config_file: Path | None) -> None:
    """Write a fileset into a directory, for example as a bag.

    DIR must be new or empty, or have the same export, unfinished, which is continued. --as selects the format: a BagIt
    bag, an RO-Crate, a Data Package, one with Croissant, or a plain directory. Files get their safe paths, and each is
    verified while it is copied. Those that are not held are named at the end, and in the description of formats that
    have one. --as urls lists them, too.

    Example: archec fileset export doi:10.5281/zenodo.3904280 bag --as bagit
    """
    if fetch and form != "bagit":
        raise UsageError("--fetch requires --as bagit")
    with opened(config_file) as archive:
        found = find_fileset(archive, name)
        count = write_export(archive, found, form, folder, fetch=fetch)
    lacking = not_held(found.manifest.manifest)
    if as_json:
        lacks = [{"path": file.path, "status": file.status} for file in found.manifest.manifest if not is_whole(file)]
        value = {"id": found.obi.id, "tist": found.tist, "form": form, "folder": str(folder), "files": count}
        echo_json(value | {"not_held": lacks})
    elif form == "urls":
        note(f"{folder}: {counted(count, 'URL')}" + (f"; held are {lacking}" if lacking else ""))
    else:
        note(f"{folder}: {lacking or counted(count, 'file')}")


@fileset.command(name="export-sql")
@click.option("--dialect", type=click.Choice(["postgresql", "sqlite"]), required=True, help="SQL dialect.")
@config_option
def export_sql(dialect: Dialect, config_file: Path | None) -> None:
    """Print the results of all ingests as SQL.

    The statements create or update the table ingest_fileset_platform.

    Example: archec fileset export-sql --dialect sqlite
    """
    lines = LineWriter()
    with opened(config_file) as archive:
        lines.raw("BEGIN;")
        for statement in statements(archive.catalogue, dialect):
            lines.raw(statement.rstrip("\n"))
        lines.raw("COMMIT;")


@fileset.command()
@click.option("--archive", "code", metavar="CODE", help="Only templates of this archive.")
@report_options
def candidates(code: str | None, as_json: bool, config_file: Path | None) -> None:
    """List linked data sets that have not been ingested yet.

    These are data sets on known platforms that templates link to by File-URL or DOI. Prints one URL per line, with
    --json one request for 'archec fileset ingest --requests -'.

    Example: archec fileset candidates --archive smp
    """
    config = load(config_file)
    registry = Registry({one.name: one for one in config.fileset.platforms})
    wanted = selection(code, None)
    with opened(config) as archive:
        warn_if_unknown(archive.catalogue, wanted)
        found = find_candidates(archive, registry, wanted.archive)
        none = "no data sets that could be ingested are linked"
        show_all(found, lambda one: one._asdict(), lambda one: [one.base_url], as_json=as_json, none=none)
