"""``archec retract``: a data set does not count any more."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.common import config_option, json_option
from archec.config import load
from archec.errors import UsageError
from archec.gather.retract import retract as retract_data_set
from archec.terminal.output import echo, echo_json
from archec.tist import iso


@click.command()
@click.argument("data_set", metavar="RUN|SHA256")
@click.option("--reason", metavar="TEXT", help="Why: it is journalled, and shown to whoever would gather it again.")
@click.option("--undo", is_flag=True, help="Make it count again.")
@json_option
@config_option
def retract(data_set: str, reason: str | None, undo: bool, as_json: bool, config_file: Path | None) -> None:
    """Make a data set not count, because it turned out wrong: misdated, or not RePEc.

    It is named by the run that read it, or by the sha256 of its file (eight digits are enough). The histories of
    templates become those of an archive that never saw it; bytes stay, and so do visits to files.
    """
    if not (reason or undo):
        raise UsageError("a retraction needs a reason", hint="give one with --reason")
    done = retract_data_set(load(config_file), data_set, reason or "", undo=undo)
    if as_json:
        echo_json({"run": done.run, "data_set": done.data_set.run, "tist": done.data_set.tist, "changed": done.changed})
        return
    what = "counts again" if undo else "is retracted"
    name = f"{done.data_set.name} of {iso(done.data_set.tist)}"
    echo(f"{name} {what} by run {done.run}: {done.changed:,} templates changed")
