"""``archec history``: every incidence of a handle or URL."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from archec.archive.lookup import HistoryRow, find, rows
from archec.catalogue.codec import plain
from archec.catalogue.model import Obi
from archec.cli.common import config_option, json_option, opened
from archec.terminal.output import echo, echo_json, fold, terminal_width
from archec.tist import iso
from archec.units import human_size


@click.command()
@click.argument("obi", metavar="ID")
@json_option
@config_option
def history(obi: str, as_json: bool, config_file: Path | None) -> None:
    """Show every incidence of ID, oldest first.

    ID is a handle or a URL in any spelling. For each: tist, time, what happened, sha256, size, path in the obi
    store, redirects, HTTP status and type.
    """
    with opened(config_file) as archive:
        found = find(archive.catalogue, obi)
        incidences = list(rows(archive, found))
        if as_json:
            value: dict[str, object] = {
                "id": found.id,
                "kind": found.kind,
                "held": found.history.held,
                "incidences": [asdict(row) for row in incidences],
            }
            if found.kind == "fobi":
                visit = found.visit
                value["visit"] = plain(visit) if visit is not None else None
                value["due"] = found.due
            echo_json(value)
            return
        echo(found.id)
        lines = [line for row in incidences for line in _lines(row)]
        if found.kind == "fobi":
            lines.append(_visit(found))
        width = terminal_width()
        for line in lines:
            for part in fold(line, width, 6):
                echo(part)


def _lines(row: HistoryRow) -> list[str]:
    what = row.kind if row.how in ("", row.kind, "new") else f"{row.kind} ({row.how})"
    head = f"{row.tist}  {row.time}  {what}"
    if row.sha256 is None:
        return [f"{head}{': ' + row.reason if row.reason else ''}"]
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
    unnamed = "; no template names it any more, so it is visited less and less" if fobi.visit.unnamed else ""
    return f"last visit {iso(fobi.visit.when)}: {fobi.visit.outcome}{message}; due {iso(fobi.due)}{unnamed}"
