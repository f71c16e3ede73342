"""``archec lost``: lists losses and returns."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from archec.catalogue.model import KINDS, Kind
from archec.cli.common import DATE, DURATION, opened, report_options, warn_if_unknown
from archec.errors import UsageError
from archec.export.units import selection
from archec.report import lost as losses
from archec.report.lost import Lost, LostQuery, NamingWork, Returned
from archec.terminal.output import show_all
from archec.tist import MAX_TIST, iso
from archec.units import human_duration

_NAMES = {"tobi": "template", "fobi": "file", "fileset": "data set"}


@click.command()
@click.option("--kind", type=click.Choice(KINDS), help="Only templates, files, or filesets.")
@click.option("--since", type=DATE, default=0, help="Only losses (with --returned: returns) at this time or later.")
@click.option(
    "--until", type=DATE, default=MAX_TIST + 1, help="Only losses (with --returned: returns) before this time."
)
@click.option(
    "--for", "at_least", type=DURATION, default=0, help="Only what is, or was, lost for at least this time, e.g. 7d."
)
@click.option("--archive", metavar="CODE", help="Only this archive, and files that its templates mention or mentioned.")
@click.option("--reason", metavar="TEXT", default="", help="Only losses whose reason contains this text.")
@click.option("--returned", "came_back", is_flag=True, help="List what was lost and came back, and after how long.")
@report_options
def lost(
    kind: Kind | None,
    since: int,
    until: int,
    at_least: float,
    archive: str | None,
    reason: str,
    came_back: bool,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """List what is lost, by the time of its loss.

    Shows when it was lost and why, when it was last seen and last noted, and the path of the held copy. For files, also
    the works that mention them, and whether another rendering of the same work is held.

    Example: archec lost --kind fobi --since 2026-01-01
    """
    wanted = selection(archive, None)
    if until < since:
        raise UsageError(f"{iso(until)} is before {iso(since)}: --until must be later than --since")
    kinds = (kind,) if kind is not None else KINDS
    query = LostQuery(int(time.time()), kinds, since, until, at_least, wanted.archive, reason)
    with opened(config_file) as opened_archive:
        warn_if_unknown(opened_archive.catalogue, wanted)
        found: Iterable[Lost | Returned]
        found = losses.returned(opened_archive, query) if came_back else losses.lost(opened_archive, query)
        none = "no returns found" if came_back else "no losses found"
        show_all(found, partial(_value, query.now), partial(_lines, query.now), as_json=as_json, none=none)


def _value(now: int, one: Lost | Returned) -> dict[str, Any]:
    value = asdict(one) | {"last_seen_time": iso(one.last_seen), "lost_time": iso(one.lost)}
    if isinstance(one, Returned):
        value |= {"returned_time": iso(one.returned), "seconds": one.returned - one.lost}
    else:
        value |= {"noted_time": iso(one.noted), "seconds": max(0, now - one.lost)}
    for field in ("handle", "title") if one.kind == "fobi" else ("works", "more"):
        value.pop(field, None)
    return value


def _lines(now: int, one: Lost | Returned) -> Iterator[str]:
    yield one.handle or one.id
    if one.title:
        yield f"    {one.title}"
    lost = f"lost {iso(one.lost)} ({one.lost})"
    because = f": {one.reason}" if one.reason else ""
    if isinstance(one, Returned):
        after, how = human_duration(one.returned - one.lost), "the same" if one.same else "changed"
        yield f"    {_NAMES[one.kind]} back {iso(one.returned)} ({one.returned}) after {after}, {how}"
        yield f"    {lost}{because}"
    else:
        yield f"    {_NAMES[one.kind]} {lost}, {human_duration(max(0, now - one.lost))} ago{because}"
    yield f"    last seen {iso(one.last_seen)} ({one.last_seen})"
    if isinstance(one, Lost):
        yield f"    last noted {iso(one.noted)} ({one.noted}), sha256 {one.sha256}"
    yield f"    {one.path or 'its bytes are not in the store'}"
    if isinstance(one, Lost):
        for work in one.works:
            yield from _work_lines(work)
        if one.more:
            yield "    and named by others"


def _work_lines(work: NamingWork) -> Iterator[str]:
    named = "named" if work.names else "was named"
    yield f"    {named} by {work.handle or work.id}{'' if work.held else ' (also lost)'}  {work.title}"
    yield f"      {f'another rendering is held: {work.rendering}' if work.rendering else 'no other rendering is held'}"
