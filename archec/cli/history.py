"""``archec history``: every incidence of a handle or URL."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from archec.archive.claims import Explanation, explain, last_seen
from archec.archive.evidence import evidence_of
from archec.archive.lookup import HistoryRow, rows
from archec.catalogue.documents import plain
from archec.catalogue.model import Obi
from archec.cli.common import find_cited, opened, report_options
from archec.store.layout import Layout
from archec.terminal.output import echo, echo_json
from archec.tist import MAX_TIST, iso
from archec.units import human_size

_LESS = frozenset({"superseded", "retracted", "conflict", "elsewhere"})
"""Outcomes of claims that are not in the history."""


@click.command()
@click.argument("obi", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="Also what was superseded, retracted or lost a conflict.")
@click.option("--why", is_flag=True, help="Also show what each data set says about a handle, and why it did not count.")
@report_options
def history(obi: str, everything: bool, why: bool, as_json: bool, config_file: Path | None) -> None:
    """Show every incidence of ID, oldest first.

    ID is a handle or a URL in any spelling. The id of a fileset, its DOI, or another URL of its page stands for the
    fileset, with or without @VERSION: all its versions are shown. Shows the tist, time, kind, sha256, size,
    path in the obi store, redirects, HTTP status and type of each incidence. A handle was last seen in the newest data
    set that contains its last state, a URL at the last visit that received or confirmed contents, a fileset at the last
    ingest for which its platform listed that state.

    Example: archec history RePEc:smp:wpaper:2024-01
    """
    with opened(config_file) as archive:
        found, _ = find_cited(archive, obi)
        evidence = evidence_of(archive.catalogue)
        incidences = list(rows(archive, found, evidence))
        seen = last_seen(found, evidence)
        if found.kind == "fileset" and found.history.held and seen is not None:
            # Imported here, because it is slow to import and rarely needed.
            from archec.fileset.lookup import last_listed

            seen = max(seen, last_listed(archive.catalogue, found))
        said = explain(found, evidence) if found.kind == "tobi" and (why or everything) else iter(())
        shown = [row for row in said if why or (everything and row.outcome in _LESS)]
        if as_json:
            value: dict[str, object] = {
                "id": found.id,
                "kind": found.kind,
                "held": found.history.held,
                "incidences": [asdict(row) for row in incidences],
                "last_seen": seen,
            }
            if why or everything:
                value["data_sets"] = [asdict(row) for row in shown]
            if found.kind == "fobi":
                visit = found.visit
                value["visit"] = plain(visit) if visit is not None else None
                value["due"] = found.due
            echo_json(value)
            return
        echo(found.id)
        lines = [line for row in incidences for line in _lines(row)]
        if not incidences:
            lines.append("never held" + ("; --all shows what data sets have that do not count" if found.claims else ""))
        if seen is not None:
            lines.append(f"last seen {'in the data set of ' if found.kind == 'tobi' else ''}{iso(seen)}")
        if found.kind == "fobi":
            lines.append(_visit(found))
        lines += [line for row in shown for line in _explained(row, found.id, archive.layout)]
        for line in lines:
            echo(line, 6)


def _explained(row: Explanation, obi: str, layout: Layout) -> list[str]:
    joined = ": " if row.outcome == "retracted" else " by "
    what = f"{row.outcome}{joined}{row.by}" if row.by else row.outcome
    shows = f"sha256 {row.state} in {row.place}" if row.state is not None else "does not show it"
    kind = "" if row.whole else ", not whole"
    lines = [f"{row.tist}  {row.name} (run {row.run}{kind}): {shows}: {what}"]
    return lines if row.bytes_at is None else [*lines, f"    {layout.path(row.bytes_at, obi)}"]


def _lines(row: HistoryRow) -> list[str]:
    what = row.kind if row.how in ("", row.kind, "new") else f"{row.kind} ({row.how})"
    head = f"{row.tist}  {row.time}  {what}"
    if row.sha256 is None:
        seen = [f"    last seen {iso(row.last_seen)}"] if row.last_seen is not None else []
        return [f"{head}{': ' + row.reason if row.reason else ''}", *seen]
    size = human_size(row.size) if row.size is not None else "?"
    http = f"  HTTP {row.status}{_end(row)}" if row.status else ""
    suspect = f"  suspect: {row.suspect}" if row.suspect else ""
    lines = [f"{head}  sha256 {row.sha256}  {size}{http}  {row.type or ''}{suspect}".rstrip()]
    lines += [f"    -> {url} ({status})" for url, status in row.redirects]
    lines.append(f"    {row.path or 'its bytes are not in the store'}")
    return lines


def _end(row: HistoryRow) -> str:
    if not row.redirects:
        return ""
    return f" -> {row.final_status}" if row.final_status is not None else f" to {row.redirects[-1][0]}"


def _visit(fobi: Obi) -> str:
    if fobi.visit is None:
        return "never visited"
    message = f": {fobi.visit.message}" if fobi.visit.message else ""
    unnamed = "; no template mentions it any more, so it is visited less often" if fobi.visit.unnamed else ""
    if fobi.due > MAX_TIST:
        due = "visited with its data set only"
    else:
        due = "due now" if fobi.due <= time.time() else f"due {iso(fobi.due)}"
    return f"last visit {iso(fobi.visit.when)}: {fobi.visit.outcome}{message}; {due}{unnamed}"
