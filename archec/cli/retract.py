"""``archec retract``: withdraws a data set, or a run's visits to files."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.common import report_options, run_of
from archec.config import load
from archec.errors import UsageError
from archec.gather.operator_decisions import retract as retract_data_set
from archec.gather.operator_decisions import retract_visits
from archec.terminal.output import show
from archec.tist import iso
from archec.units import counted


@click.command()
@click.argument("data_set", metavar="RUN|SHA256")
@click.option("--visits", is_flag=True, help="Retract the visits of RUN to files, not its data set.")
@click.option(
    "--reason", metavar="TEXT", help="The reason; it is journalled, and shown when someone tries to gather it again."
)
@click.option("--undo", is_flag=True, help="Reverse a retraction.")
@report_options
def retract(
    data_set: str, visits: bool, reason: str | None, undo: bool, as_json: bool, config_file: Path | None
) -> None:
    """Withdraw a data set that turned out to be wrong.

    For example, it was misdated, or is not RePEc. It is given by the run that read it ('last': the newest gathering),
    or by the sha256 of its file (eight digits are enough). The histories of templates become those of an archive that
    never read it; bytes and visits to files stay.

    With --visits, withdraws what a run concluded about files, because its clock was wrong or a login page of the
    network answered for every host. Histories of files become those of an archive that did not make these visits, and
    so do the records of hosts and the losses held back; bytes stay. Files that no run has visited since are due
    immediately.

    Example: archec retract 1352481230 --reason "misdated"
    """
    if not (reason or undo):
        raise UsageError("a retraction needs a reason", hint="give one with --reason")
    what = "counts again" if undo else "is retracted"
    if visits:
        _visits(config_file, data_set, reason or "", undo=undo, as_json=as_json)
        return
    done = retract_data_set(load(config_file), data_set, reason or "", undo=undo)
    value = {"run": done.run, "data_set": done.data_set.run, "tist": done.data_set.tist, "changed": done.changed}
    name = f"{done.data_set.name} of {iso(done.data_set.tist)}"
    show(value, f"{name} {what} (run {done.run}): {counted(done.changed, 'template')} changed", as_json=as_json)


def _visits(config_file: Path | None, word: str, reason: str, *, undo: bool, as_json: bool) -> None:
    run = run_of(word, config_file)
    by, done = retract_visits(load(config_file), run, reason, undo=undo)
    what = "count again" if undo else "are retracted"
    files = f"{counted(done.changed, 'file')} changed, {done.due:,} due now"
    line = f"The visits of run {run} {what} (run {by}): {files}"
    show({"run": by, "visits": run, **done._asdict()}, line, as_json=as_json)
