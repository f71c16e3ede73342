"""``archec fileset``: data sets behind landing pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from archec.cli.common import config_option
from archec.config import load
from archec.errors import UsageError
from archec.fileset import result as results
from archec.fileset.model import IngestRequest, IngestStrategy
from archec.fileset.problems import BadRequest
from archec.fileset.result import IngestResult
from archec.fileset.run import Line, exit_code, run_ingest
from archec.fileset.work import IngestOptions
from archec.terminal.progress import meter_for
from archec.units import parse_duration, parse_size


@click.group()
def fileset() -> None:
    """Keep data sets behind landing pages: Zenodo, Dataverse, Figshare, openICPSR and others."""


@fileset.command()
@click.argument("urls", nargs=-1, metavar="[URL|DOI|HANDLE]...")
@click.option("--requests", metavar="FILE", help="Read requests from FILE (- is stdin): one JSON object a line.")
@click.option(
    "--strategy", type=click.Choice([one.value for one in IngestStrategy]), help="Rather than what the limits say."
)
@click.option("--force", is_flag=True, help="Fetch again what is held already.")
@click.option("--direct", is_flag=True, help="A URL that is itself a data file is ingested, too.")
@click.option("--follow-concept", is_flag=True, help="A concept id stands for its newest version.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files whose path fits; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No files whose path fits; may be repeated.")
@click.option("--file-results", metavar="FILE", help="Where results of single data files go (- is stdout).")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, metavar="N", help="Data sets at once; default 1.")
@click.option("--wait", is_flag=True, help="Wait for another run to end, rather than exit with code 4.")
@click.option("--dry-run", is_flag=True, help="Show manifests, sizes and strategies; keep nothing.")
@click.option("--max-files", type=click.IntRange(1, 100_000), metavar="N", help="Instead of fileset.max_file_count.")
@click.option("--max-total", metavar="SIZE", help="Instead of fileset.max_total_size, e.g. 200GiB.")
@click.option("--max-time", metavar="DURATION", help="Stop after this time, e.g. 6h.")
@config_option
@click.pass_context
def ingest(
    context: click.Context,
    urls: tuple[str, ...],
    requests: str | None,
    strategy: str | None,
    force: bool,
    direct: bool,
    follow_concept: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    file_results: str | None,
    jobs: int,
    wait: bool,
    dry_run: bool,
    max_files: int | None,
    max_total: str | None,
    max_time: str | None,
    config_file: Path | None,
) -> None:
    """Ingest data sets: one result a line on stdout, as JSON.

    The manifest comes from the platform's API; every file is fetched, verified and kept in the obi store. What is held
    already is not fetched again, and what was broken off is gone on with.
    """
    if not urls and requests is None:
        raise UsageError("there is nothing to ingest", hint="name URLs or DOIs, or requests with --requests FILE")
    config = load(config_file)
    options = IngestOptions(
        IngestStrategy(strategy) if strategy else None,
        force, direct, follow_concept, include, exclude, dry_run, max_files,
        parse_size(max_total) if max_total is not None else None,
    )  # fmt: skip
    seconds = parse_duration(max_time) if max_time is not None else 0.0
    with ExitStack() as stack:
        source = _opened(stack, requests) if requests is not None else None
        files = _output(stack, file_results) if file_results is not None else None

        def emit(result: IngestResult, file: IngestResult | None) -> None:
            _write(sys.stdout.buffer, result)
            if file is not None and files is not None:
                _write(files, file)

        meter = stack.enter_context(meter_for())
        counter = run_ingest(
            config, _lines(urls, source), options, meter, emit, jobs=jobs, wait=wait, max_time=seconds
        )  # fmt: skip
    context.exit(int(exit_code(counter.statuses)))


def _lines(urls: tuple[str, ...], source: BinaryIO | None) -> Iterator[Line]:
    """The requests: those of the command line, then those of the file."""
    for url in urls:
        yield url, IngestRequest(url)
    for line in source or ():
        if not line.strip():
            continue
        text = line.decode("utf-8", "replace").strip()
        try:
            yield text, results.request_of(line.strip())
        except BadRequest as problem:
            yield text, problem


def _write(target: BinaryIO, result: IngestResult) -> None:
    target.write(results.encode(result) + b"\n")
    target.flush()


def _opened(stack: ExitStack, name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(open(name, "rb"))
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}") from error


def _output(stack: ExitStack, name: str) -> BinaryIO:
    if name == "-":
        return sys.stdout.buffer
    try:
        return stack.enter_context(open(name, "ab"))
    except OSError as error:
        raise UsageError(f"{name}: cannot be written: {error.strerror}") from error
