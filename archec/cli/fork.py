"""``archec fork``: the archive goes on after an older copy of it was restored."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.common import config_option, json_option
from archec.config import load
from archec.proof.forking import declare_fork
from archec.proof.seal import read_seal
from archec.terminal.output import echo, echo_json
from archec.terminal.progress import meter_for
from archec.tist import iso


@click.command()
@click.option("--reason", required=True, metavar="TEXT", help="Why: it is journalled for good.")
@click.option(
    "--seal", "seal_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="A seal of what is lost, where the catalogue does not know of it.",
)  # fmt: skip
@json_option
@config_option
def fork(reason: str, seal_file: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Go on after an older copy of the archive was restored.

    For where the newer one is lost for good. Until then the catalogue, which knows of batches that are not there any
    more, makes runs and 'archec rebuild' exit with 6. This journals what is lost, and the reason, and makes the
    catalogue anew. 'archec verify --seal' tells such a fork from one that nobody declared. A newer copy is better:
    restore that one if there is any.

    Example: archec fork --reason "disk lost on 3 May, restored from the backup of 2 May"
    """
    seal = read_seal(seal_file).seal if seal_file is not None else None
    with meter_for() as meter:
        made = declare_fork(load(config_file), reason, seal, meter)
    if as_json:
        echo_json(made.as_value())
        return
    kept, lost = made.kept, made.lost
    echo(f"Run {made.run} ({iso(made.run)}) declares: what came after batch {kept.batch} of run {kept.run} is lost,")
    echo(f"up to batch {lost.batch} of run {lost.run} ({iso(lost.run)}); the catalogue was made anew.")
