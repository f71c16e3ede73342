"""``archec changes``: incidences in the order of time, and what changed in a template."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from archec.archive.lookup import find
from archec.archive.opening import Archive
from archec.cli.common import config_option, json_option, opened
from archec.errors import UsageError
from archec.report import changes as incidences
from archec.report.changes import Incident, text_diff
from archec.terminal.output import LineWriter, fit, note, shown, terminal_width
from archec.tist import iso, parse_when


@click.command()
@click.option("--since", metavar="RUN|DATE", help="Only since this date, or since this run (its tist, or 'last').")
@click.option("--diff", "obi", metavar="ID", help="Show what changed in the text of this template.")
@click.option("--from", "from_when", metavar="WHEN", help="With --diff: the older state; default: the one before.")
@click.option("--to", "to_when", metavar="WHEN", help="With --diff: the newer state; default: the newest.")
@json_option
@config_option
def changes(
    since: str | None,
    obi: str | None,
    from_when: str | None,
    to_when: str | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """List incidences by time: new, changed, lost, returned.

    A DATE is that of the incidence: for a template, the date of the data set. With a RUN, incidences are listed in
    the order in which it and later runs noted them, whatever the date of their data sets.
    """
    if obi is None and (from_when is not None or to_when is not None):
        raise UsageError("--from and --to require --diff")
    if obi is not None and since is not None:
        raise UsageError("--since and --diff exclude each other")
    with opened(config_file) as archive:
        if obi is not None:
            _diff(archive, obi, from_when, to_when, as_json=as_json)
            return
        run = incidences.first_run(archive.catalogue, since) if since is not None else None
        if run is not None:
            found = incidences.changes_of_runs(archive.catalogue, run)
        else:
            found = incidences.changes(archive.catalogue, parse_when(since) if since is not None else 0)
        width, lines = terminal_width(), LineWriter()
        for one in found:
            if as_json:
                lines.json(asdict(one) | {"time": iso(one.tist)})
            else:
                lines.text(_line(one, width))
        if not lines.any and width is not None:
            note("no incidences")


def _line(one: Incident, width: int | None) -> str:
    what = f"{one.what} ({one.how})" if one.how else one.what
    line = f"{iso(one.tist)}  {what:<20}  {shown(one.handle or one.id)}"
    if one.suspect:
        line += f"  suspect: {shown(one.suspect)}"
    if one.reason:
        line += f"  {shown(one.reason)}"
    return f"{line}  {fit(one.title, width, len(line) + 2)}" if one.title else line


def _diff(archive: Archive, raw: str, from_when: str | None, to_when: str | None, *, as_json: bool) -> None:
    found = find(archive.catalogue, raw)
    if found.kind != "tobi":
        raise UsageError(f"{found.id}: only templates can be compared", hint="'archec get' writes a file as of a time")
    diff = text_diff(
        archive,
        found,
        parse_when(from_when) if from_when is not None else None,
        parse_when(to_when) if to_when is not None else None,
    )
    if as_json:
        LineWriter().json(asdict(diff) | {"before_time": iso(diff.before), "after_time": iso(diff.after)})
        return
    lines = LineWriter()
    for line in diff.lines:
        lines.text(shown(line.replace("\t", "    ")))
    if not lines.any:
        note(f"the texts of {iso(diff.before)} and {iso(diff.after)} are equal")
