"""``archec status``: the archive on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from archec.catalogue.model import AT_ONCE
from archec.cli.common import opened, report_options
from archec.cli.runreport import deferred_files, host_outcomes
from archec.monitor.status import ArchiveStatus, DiskSpace, Due, PendingLosses
from archec.monitor.status import status as look
from archec.terminal.output import show
from archec.tist import iso
from archec.units import counted, human_duration, human_size

_MAX_ROWS = 3
_AHEAD = 60
"""Seconds by which a tist may be ahead of the clock, as after runs in quick succession."""


@click.command()
@report_options
def status(as_json: bool, config_file: Path | None) -> None:
    """Show the state of the archive on one screen.

    Shows its contents, the last run, what is due, and what needs attention.

    Example: archec status
    """
    with opened(config_file) as archive:
        found = look(archive)
    rows = (f"{label:<13} {text}" for label, text in _rows(found))
    show(found.as_value(), *rows, as_json=as_json, indent=14)


def _rows(found: ArchiveStatus) -> Iterator[tuple[str, str]]:
    obis = found.obis
    yield "archive", f"{found.name}  at {iso(found.now)}"
    yield "templates", f"{obis.tobis_held:,} held, {obis.tobis_lost:,} lost"
    yield "files", f"{obis.fobis_held:,} held, {obis.fobis_lost:,} lost, {obis.fobis_never:,} never held"
    if obis.filesets_held or obis.filesets_lost:
        yield "filesets", f"{obis.filesets_held:,} held, {obis.filesets_lost:,} lost"
    yield "stored", human_size(found.stored_bytes)
    yield "disk", _disk(found.disk, found.min_free)
    if found.at_work:
        yield "active", found.at_work
    yield from _last(found)
    if found.unbegun is not None:
        which = "a later one" if found.last is not None else "one"
        yield "", f"{which} failed before it began, at {iso(found.unbegun.time)}: {found.unbegun.message}"
    if found.ahead > _AHEAD:
        yield "clock", f"the last run's tist is {human_duration(found.ahead)} ahead of it; tists increase by seconds"
    filesets = found.due_filesets.next is not None
    yield "due", "no files" if filesets and found.due.next is None else _due(found.due, "file")
    if filesets:
        yield "", f"data sets: {_due(found.due_filesets, 'data set')}"
    yield from _hosts(found)
    yield from _held_back(found.held_back)
    yield from _fixity(found)
    if found.damaged:
        yield "catalogue", f"DAMAGED, so that not all of this is known: {found.damaged}"
    if found.refused:
        yield "catalogue", f"the database did not take {counted(found.refused, 'document')}: archec check"


def _last(found: ArchiveStatus) -> Iterator[tuple[str, str]]:
    last = found.last
    if last is None:
        newest = found.newest
        other = f", but {newest.run}  {iso(newest.run)}  {newest.kind}  {newest.state}" if newest is not None else ""
        yield "last run", f"no gathering yet{other}" if other else "none yet"
        return
    took = f", took {human_duration(last.seconds)}" if last.seconds is not None else ""
    resumable = ", resumable: archec gather --resume" if last.resumable else ""
    yield "last run", f"{last.run}  {iso(last.run)}  {last.state}{took}{resumable}"
    if last.message or last.unanswered:
        yield "", last.message or "no host answered"
    if last.figures.fetch.deferred:
        yield "", f"deferred {deferred_files(last.figures.fetch)}"
    if found.success is None:
        yield "", "no run has succeeded yet"
    elif found.success.run != last.run:
        yield "", f"last success: {found.success.run}  {iso(found.success.run)}"


def _due(due: Due, what: str) -> str:
    if due.next is None:
        return "nothing"
    now = f"{due.now:,} and more {what}s now" if due.more else f"{counted(due.now, what)} now"
    if due.now:
        first = f", the first since {iso(due.next)}" if due.next > AT_ONCE else ""
        return now + (", the first never tried" if not due.next else first)
    return f"nothing now, next {iso(due.next)}"


def _hosts(found: ArchiveStatus) -> Iterator[tuple[str, str]]:
    if found.hosts_run is None:
        return
    yield "hosts", f"{found.hosts_in_trouble:,} in trouble in run {found.hosts_run}"
    for host in found.hosts[:_MAX_ROWS]:
        yield "", f"{host.host}: {host_outcomes(host)}"
    if found.hosts_in_trouble > _MAX_ROWS:
        yield "", f"and {found.hosts_in_trouble - _MAX_ROWS:,} more: archec runs {found.hosts_run}"


def _held_back(held_back: tuple[PendingLosses, ...]) -> Iterator[tuple[str, str]]:
    losses = sum(item.losses for item in held_back)
    yield "held back", f"{counted(losses, 'loss', 'losses')} waiting for a decision" if losses else "nothing"
    for item in held_back[:_MAX_ROWS]:
        command = f"archec losses accept {item.run} {item.archive}"
        yield "", f"{item.losses:,} of {item.archive}{f' in {item.source}' if item.source else ''}: {command}"
    if len(held_back) > _MAX_ROWS:
        yield "", f"and of {counted(len(held_back) - _MAX_ROWS, 'more archive')}"


def _disk(disk: DiskSpace, min_free: float) -> str:
    if not disk.size:
        return "unknown"
    inodes = f", {disk.inodes_free:,} inodes free" if disk.inodes else ""
    is_low = disk.free < min_free * disk.size or disk.inodes_free < min_free * disk.inodes
    low = ", LOW: runs stop" if is_low else ""
    return f"{human_size(disk.free)} free of {human_size(disk.size)} ({disk.free / disk.size:.0%}){inodes}{low}"


def _fixity(found: ArchiveStatus) -> Iterator[tuple[str, str]]:
    fixity = found.fixity
    if fixity.damaged:
        yield "fixity", f"the record of checks is damaged: {fixity.damaged}; archec verify starts over"
        return
    oldest = (
        f"the oldest check is of {iso(fixity.oldest)}"
        if fixity.oldest is not None
        else "nothing has been checked yet: archec verify"
    )
    yield "fixity", oldest
    if fixity.bad:
        yield "", f"BAD: {counted(fixity.bad, 'entry', 'entries')}: archec verify --repair-from COPY"
    if fixity.whole.objects:
        parts = (f"{some.objects / fixity.whole.objects:.1%} within {days} days" for days, some in fixity.within)
        never = f"{fixity.never.objects:,} objects ({human_size(fixity.never.bytes)}) never"
        yield "", f"of {fixity.whole.objects:,} objects {', '.join(parts)}; {never}"
    if fixity.uncounted:
        yield "", f"{counted(fixity.uncounted, 'journal')} not included yet: archec check"
    if not fixity.structures:
        yield "structure", "not checked yet: archec check"
    for one in fixity.structures:
        wrong = f"{one.wrong:,} WRONG: archec check shows them" if one.wrong else "nothing wrong"
        yield "structure", f"{'quick' if one.quick else 'full'} check {iso(one.at)}: {wrong}"
