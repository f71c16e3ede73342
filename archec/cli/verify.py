"""``archec verify``: checks fixity, and repairs from a second copy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from archec.archive.opening import Archive
from archec.audit.findings import Finding, Summary
from archec.audit.opening import opened_for_audit
from archec.audit.repair import Repair, write_descriptor
from archec.audit.verify import Scope, VerifySummary
from archec.audit.verify import verify as verify_archive
from archec.cli.common import DURATION, READABLE, SHARE, SIZE, leave, report_options
from archec.config import Config, load
from archec.errors import CatalogueError, Exit, UsageError
from archec.store.layout import open_store
from archec.terminal.output import show
from archec.terminal.progress import meter_for
from archec.tist import iso
from archec.units import counted, human_duration, human_size


@click.command()
@click.option("--all", "everything", is_flag=True, help="Check everything (default).")
@click.option("--sample", type=SHARE, help="Check this share of the files, e.g. 5%, least recently checked first.")
@click.option("--max-time", type=DURATION, help="Stop after this time, e.g. 2h; least recently checked first.")
@click.option("--rate", type=SIZE, default=0, help="Read at most this much per second, e.g. 50MB; 0: no limit.")
@click.option(
    "--seal", "seal_files", multiple=True, type=READABLE,
    help="Check that everything sealed is there, unaltered; may be repeated.",
)  # fmt: skip
@click.option("--repair-from", "copy", metavar="DIR|URL", help="Repair from this copy of the archive directory.")
@report_options
def verify(
    everything: bool,
    sample: float | None,
    max_time: float | None,
    rate: int,
    seal_files: tuple[Path, ...],
    copy: str | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Hash the held files and compare them with the records.

    The records are the journals and the catalogue. Files known to be bad are checked first, then those checked least
    recently. With --repair-from, missing and bad files are restored if the copy's sha256 matches; a bad file is moved
    to archive/quarantine, never overwritten. With --seal, the journals are compared with seals ('archec seal'), and
    files are only read with --all, --sample or --max-time. Exits with 6 if something is wrong and was not repaired.

    Example: archec verify --max-time 2h --rate 50MB
    """
    if sum((everything, sample is not None, max_time is not None)) > 1:
        raise UsageError("--all, --sample and --max-time exclude each other")
    scope = Scope(sample, max_time or 0.0, rate)
    config = load(config_file)
    sealed = _check_seals(config, seal_files, as_json=as_json)
    if seal_files and not (everything or sample is not None or max_time is not None or copy is not None):
        leave(Exit.DONE if sealed else Exit.CORRUPT)
    rewritten = write_descriptor(config, copy) if copy is not None else None
    with opened_for_audit(config, writable=copy is not None) as archive, ExitStack() as stack:
        repair = None
        if rewritten is not None:
            archive.findings.append(rewritten)
        if copy is not None:
            if archive.catalogue is None:
                why = archive.unopened.message if archive.unopened is not None else ""
                hint = "'archec check --fix' makes one, also from damaged journals; move a damaged one away first"
                raise CatalogueError(f"a repair needs the catalogue: {why}", hint=hint)
            from archec.audit.copies import open_copy  # imports an HTTP client, which is rarely needed

            source = stack.enter_context(open_copy(copy, config, archive.layout))
            repair = Repair(Archive(archive.config, archive.layout, archive.catalogue), source)
        with meter_for() as meter:
            summary = verify_archive(archive, scope, meter, partial(print_finding, as_json=as_json), repair)
    conclude(summary, _lines(summary), as_json=as_json)
    if not sealed:
        leave(Exit.CORRUPT)


def _check_seals(config: Config, files: Sequence[Path], *, as_json: bool) -> bool:
    """Compares the journals with seals and prints a result for each; returns whether all are valid."""
    if not files:
        return True
    from archec.proof.seal_file import read_seal
    from archec.proof.sealing import check_seals, trusted_keys  # needed for seals only

    seals = [(str(path), read_seal(path)) for path in files]
    with meter_for() as meter:
        verdicts = check_seals(open_store(config), seals, trusted_keys(config), meter)
    for verdict in verdicts:
        show(verdict.as_value(), *verdict.as_lines(), as_json=as_json)
    return not any(verdict.fault for verdict in verdicts)


def print_finding(finding: Finding, *, as_json: bool) -> None:
    """Prints a finding as a line of text or JSON."""
    show(finding.as_value(), str(finding), as_json=as_json)


def conclude(summary: Summary, lines: Sequence[str], *, as_json: bool) -> None:
    """Prints the result, as JSON or as ``lines``. Exits with 6 if something is wrong, with 1 if that could not be
    determined."""
    show(summary.as_value(), *lines, as_json=as_json)
    if not summary.clean:
        leave(Exit.CORRUPT)
    if summary.tally.by_code["no-scratch-space"]:
        leave(Exit.OPERATOR_ERROR)


def _lines(summary: VerifySummary) -> list[str]:
    tally = summary.tally
    head = (
        f"Checked {counted(summary.files, 'file')}, {human_size(summary.bytes)}, in "
        f"{human_duration(summary.seconds)}: {tally}."
    )
    lines = [head, *tally.as_lines()] if summary.files or tally.by_code else ["Nothing was checked."]
    if summary.oldest:
        lines.append(f"The oldest check is of {iso(summary.oldest)}.")
    return lines
