"""``archec check``: the structure of an archive."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from archec.audit.check import CheckSummary, check_layout
from archec.audit.check import check as check_archive
from archec.audit.opening import opened_for_audit
from archec.cli.common import report_options
from archec.cli.verify import conclude, print_finding
from archec.config import load
from archec.errors import UsageError
from archec.terminal.progress import meter_for
from archec.units import counted, human_duration


@click.command()
@click.option("--fix", is_flag=True, help="Fix what is safe to fix; move unexpected files to quarantine.")
@click.option("--unjournalled", is_flag=True, help="With --fix: also move what a lost journal may have named.")
@click.option("--quick", is_flag=True, help="Compare only the histories of the catalogue, e.g. every night.")
@report_options
def check(fix: bool, unjournalled: bool, quick: bool, as_json: bool, config_file: Path | None) -> None:
    """Check that journals, names, links and catalogue agree.

    Rebuilds the catalogue from the journals in scratch space and compares the whole catalogue with it; with --quick
    only its histories. Does not read the contents of files: 'archec verify' does. Without --fix, nothing in the archive
    is changed. With --fix, temporary files are removed, a catalogue that is behind is updated, and files that no
    journal can have named are moved to archive/quarantine, with a record; no run can start meanwhile. Exits with 6 if
    something is wrong, and with 1 if there was not enough space to find out.

    Example: archec check --quick
    """
    if unjournalled and not fix:
        raise UsageError("--unjournalled is for --fix")
    config = load(config_file)
    report = partial(print_finding, as_json=as_json)
    summary = check_layout(config, report)
    if summary is None:
        with meter_for() as meter, opened_for_audit(config, lock="check" if fix else "") as archive:
            summary = check_archive(archive, meter, report, fix=fix, quick=quick, unjournalled=unjournalled)
    conclude(summary, _lines(summary), as_json=as_json)


def _lines(summary: CheckSummary) -> list[str]:
    tally = summary.tally
    head = (
        f"Checked {counted(summary.journals, 'journal')} with {counted(summary.lines, 'line')}, and "
        f"{counted(summary.names, 'name')}, in {human_duration(summary.seconds)}: {tally}."
    )
    return [head, *tally.as_lines(), *(() if summary.whole else ["The catalogue was not checked completely."])]
