"""``archec losses``: lists and accepts held-back losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from archec.archive.held_back import held_losses
from archec.archive.runs import known_run
from archec.catalogue.interface import Catalogue
from archec.cli.common import opened, report_options, run_of
from archec.config import load
from archec.errors import UsageError
from archec.gather.operator_decisions import accept, awaiting
from archec.ids import is_url, normalise, typed
from archec.terminal.output import note, show, show_all
from archec.tist import iso
from archec.units import counted

_ACCEPT = "accept"


@click.command()
@click.argument("words", nargs=-1, metavar="[RUN | accept RUN [ARCHIVE|HOST|ID]...]")
@report_options
def losses(words: tuple[str, ...], as_json: bool, config_file: Path | None) -> None:
    """List the losses that are held back, or accept them.

    'archec losses' lists the losses that await a decision: the run whose data set lacks the template, the archive (or
    the archive's directory) that would lose too much at once, and the handle; for files the run that found them gone,
    their host, and the URL. With RUN it lists all that this run held back and that was not accepted, also where a later
    run decides again.

    RUN is a software tist, or 'last' for the newest gathering. 'archec losses accept RUN' accepts all losses of a
    run, or those of the archives, hosts and ids that follow; nothing is gathered. A template is then lost from the
    first data set on that lacks it. What a later data set or visit has shown to be back is not lost.

    Example: archec losses
    """
    if words and words[0] == _ACCEPT:
        _accept(words[1:], config_file, as_json=as_json)
        return
    if len(words) > 1:
        raise UsageError(f"{words[1]!r} is not expected", hint="to accept losses: archec losses accept RUN ...")
    run = run_of(words[0], config_file, "archec losses") if words else None
    with opened(config_file) as archive:
        if run is not None:
            known_run(archive.catalogue, run)
        none = "no losses are held back" + (f" by run {run}" if words else "")
        show_all(_rows(archive.catalogue, run), dict, _lines, as_json=as_json, none=none)


def _rows(catalogue: Catalogue, run: int | None) -> Iterator[dict[str, Any]]:
    for held_back in awaiting(catalogue) if run is None else catalogue.held_back():
        if run is None or held_back.run == run:
            for group, loss in held_losses(catalogue, held_back):
                obi = catalogue.obis(held_back.kind, [loss]).get(loss)
                newest = obi.newest if obi is not None else None
                yield {
                    "run": held_back.run, "run_time": iso(held_back.run), "kind": held_back.kind, "group": group,
                    "id": loss, "title": newest.title if newest is not None else "",
                }  # fmt: skip


def _lines(row: dict[str, Any]) -> tuple[str, ...]:
    return ("{run}  {group:<5} {id}  {title}".format_map(row).rstrip(),)


def _accept(words: tuple[str, ...], config_file: Path | None, *, as_json: bool) -> None:
    if not words:
        raise UsageError("no run given", hint="'archec losses' lists them")
    wanted = {_named(word) for word in words[1:]}
    done = accept(load(config_file), run_of(words[0], config_file, "archec losses"), wanted)
    for obi in done.back:
        note(f"{obi}: a later {'visit found' if is_url(obi) else 'data set contains'} it: it is not lost")
    line = f"{counted(done.accepted, 'loss', 'losses')} accepted by run {done.run}"
    show(done._asdict(), line, as_json=as_json)


def _named(word: str) -> str:
    """A normalised id; archive codes and hosts are returned unchanged."""
    is_id = not word or "://" in word or word.lower().startswith("repec:")
    return normalise(typed(word))[1] if is_id else word.lower()
