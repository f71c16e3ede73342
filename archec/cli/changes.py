"""``archec changes``: incidences by time, and the diff of a template."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from archec.archive.lookup import find
from archec.archive.opening import Archive
from archec.archive.runs import newest_gathering, run_named
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import KINDS, Kind
from archec.cli.common import WHEN, opened, report_options, warn_if_unknown
from archec.errors import BadName, UsageError
from archec.export.units import UnitSelection, selection
from archec.report import changes as incidences
from archec.report.changes import ChangesQuery, Incident, text_diff
from archec.terminal.output import LineWriter, note, show_all, shown
from archec.tist import iso, parse_when


@click.command()
@click.option("--since", metavar="RUN|DATE", help="Only from this date, or from this run (its tist, or 'last').")
@click.option("--until", metavar="RUN|DATE", help="Only before this date, or from runs before this one.")
@click.option("--archive", metavar="CODE", help="Only this archive, and files that its templates mention or mentioned.")
@click.option("--kind", type=click.Choice(KINDS), help="Only templates, files, or filesets.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N.")
@click.option("--diff", "obi", metavar="ID", help="Show the diff of this template.")
@click.option("--from", "older", type=WHEN, help="With --diff: the older state; default: the previous one.")
@click.option("--to", "newer", type=WHEN, help="With --diff: the newer state; default: the newest.")
@report_options
def changes(
    since: str | None,
    until: str | None,
    archive: str | None,
    kind: Kind | None,
    limit: int | None,
    obi: str | None,
    older: int | None,
    newer: int | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """List incidences by time: new, changed, lost, returned.

    A DATE refers to the incidence: for a template, the date of the data set. With a RUN, incidences are listed that
    this run and later ones noted, run by run, whatever the dates of their data sets; a program that polls continues
    with the run of the last line (and gets again what that run noted).

    Example: archec changes --since last
    """
    if obi is None and (older is not None or newer is not None):
        raise UsageError("--from and --to require --diff")
    selecting = {"--since": since, "--until": until, "--archive": archive, "--kind": kind, "--limit": limit}
    if obi is not None and (given := [name for name, value in selecting.items() if value is not None]):
        raise UsageError(f"{given[0]} and --diff exclude each other")
    query = ChangesQuery(kinds=(kind,) if kind is not None else KINDS, archive=selection(archive, None).archive)
    with opened(config_file) as of:
        if obi is not None:
            _diff(of, obi, older, newer, as_json=as_json)
            return
        warn_if_unknown(of.catalogue, UnitSelection(query.archive))
        if until is not None:
            end = _run(of.catalogue, until)
            query = query._replace(until_run=end) if end is not None else query._replace(until=_when("--until", until))
        run = _run(of.catalogue, since) if since is not None else None
        if run is not None:
            found = incidences.changes_of_runs(of.catalogue, run, query)
        else:
            query = query._replace(since=_when("--since", since) if since is not None else 0)
            if query.until < query.since:
                raise UsageError(f"{iso(query.until)} is before {iso(query.since)}: --until must be later than --since")
            found = incidences.changes(of.catalogue, query)
        show_all(islice(found, limit), _value, _lines, as_json=as_json, none="no incidences found")


def _run(catalogue: Catalogue, text: str) -> int | None:
    run = run_named(lambda: newest_gathering(catalogue), text)
    return run if run is not None and catalogue.run(run) is not None else None


def _when(option: str, text: str) -> int:
    try:
        return parse_when(text)
    except BadName as error:
        raise UsageError(f"{option}: {error.message}", hint=error.hint) from error


def _value(one: Incident) -> dict[str, Any]:
    return asdict(one) | {"time": iso(one.tist)}


def _lines(one: Incident) -> tuple[str, ...]:
    what = f"{one.what} ({one.how})" if one.how else one.what
    suspect = f"suspect: {one.suspect}" if one.suspect else ""
    parts = (iso(one.tist), f"{what:<20}", one.handle or one.id, suspect, one.reason, one.title)
    return ("  ".join(filter(None, parts)),)


def _diff(archive: Archive, raw: str, older: int | None, newer: int | None, *, as_json: bool) -> None:
    found = find(archive.catalogue, raw)
    if found.kind != "tobi":
        raise UsageError(f"{found.id}: only templates can be compared", hint="'archec get' writes a file as of a time")
    diff = text_diff(archive, found, older, newer)
    if as_json:
        LineWriter().json(asdict(diff) | {"before_time": iso(diff.before), "after_time": iso(diff.after)})
        return
    lines = LineWriter()
    for line in diff.lines:
        lines.raw(shown(line.replace("\t", "    ")))
    if not lines.any:
        note(f"the texts of {iso(diff.before)} and {iso(diff.after)} are equal")
