"""``archec compare``: this archive and a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from archec.audit.compare import RELATIONS, CopyReport
from archec.audit.compare import compare as compare_copies
from archec.cli.common import leave, report_options
from archec.config import load
from archec.errors import Exit
from archec.store.layout import open_store
from archec.terminal.output import show
from archec.terminal.progress import meter_for
from archec.tist import iso
from archec.units import counted, human_duration, listed


@click.command()
@click.argument("copy", metavar="DIR|URL")
@click.option("--heads", is_flag=True, help="Compare journals only, not the files of the obi store.")
@report_options
def compare(copy: str, heads: bool, as_json: bool, config_file: Path | None) -> None:
    """Compare this archive with a copy of it.

    The copy is a directory, or the URL of one on a web server. Finds the last common batch of the journals, and which
    of the two continues after it; if both do, lists what each noted since. Then compares names and sizes of all common
    files; no file is read. Check each of them with 'archec check' and 'archec verify' first. Exits with 6 if the copies
    have diverged, or a file is missing or of another size; a copy that is merely older is not an error.

    Example: archec compare /mnt/copy/archec
    """
    from archec.audit.copies import open_copy  # imports an HTTP client, which is rarely needed

    config = load(config_file)
    layout = open_store(config)
    with open_copy(copy, config, layout) as other, meter_for() as meter:
        found = compare_copies(
            config, layout, other, meter, lambda one: show(one.as_value(), str(one), as_json=as_json), files=not heads
        )
    show(found.as_value(), *_lines(found), as_json=as_json)
    leave(Exit.DONE if found.sound else Exit.CORRUPT)


def _lines(found: CopyReport) -> Iterator[str]:
    if found.common is not None:
        run, batch = found.common.run, found.common.batch
        yield f"The last common batch is batch {batch} of run {run} ({iso(run)}), {found.common.sha256}."
    yield RELATIONS[found.relation]
    for name, rest in (("This archive", found.here), ("The copy", found.copy)):
        if rest.batches:
            entries, batches = counted(rest.entries, "entry", "entries"), counted(rest.batches, "batch", "batches")
            yield f"  {name} has {entries} in {batches} of {counted(rest.runs, 'run')} since."
    if found.unlisted:
        yield "  The server does not list the directory of journals: whether the copy has later runs is unknown."
    if found.files or found.differences:
        what = listed(dict(sorted(found.differences.items())), "no difference")
        yield f"Compared {counted(found.files, 'file')} by name and size, in {human_duration(found.seconds)}: {what}."
