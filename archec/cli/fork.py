"""``archec fork``: declares that the archive continues from a restored older copy."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.common import FILE, report_options
from archec.config import load
from archec.proof.forking import declare_fork
from archec.proof.seal_file import read_seal
from archec.terminal.output import show
from archec.terminal.progress import meter_for
from archec.tist import iso


@click.command()
@click.option("--reason", required=True, metavar="TEXT", help="The reason; it is journalled permanently.")
@click.option("--seal", "seal_file", type=FILE, help="A seal of what is lost, if the catalogue does not know it.")
@report_options
def fork(reason: str, seal_file: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Continue after an older copy of the archive was restored.

    Use this if the newer archive is lost for good. Before it, runs and 'archec rebuild' exit with 6, because the
    catalogue contains batches that no longer exist. This command journals what is lost, and the reason, and rebuilds
    the catalogue. 'archec verify --seal' distinguishes such a fork from an undeclared one. If there is a newer copy,
    restore that instead.

    Example: archec fork --reason "disk lost on 3 May, restored from the backup of 2 May"
    """
    seal = read_seal(seal_file).seal if seal_file is not None else None
    with meter_for() as meter:
        made = declare_fork(load(config_file), reason, seal, meter)
    kept, lost = made.kept, made.lost
    show(
        made.as_value(),
        f"Run {made.run} ({iso(made.run)}) declares: what came after batch {kept.batch} of run {kept.run} is lost,",
        f"up to batch {lost.batch} of run {lost.run} ({iso(lost.run)}); the catalogue was rebuilt.",
        as_json=as_json,
    )
