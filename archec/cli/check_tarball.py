"""``archec check-tarball``: checks tarballs for damage, and shows what gathering them would find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from archec.cli.common import PATH, leave, load_or_default, report_options
from archec.errors import DataSetError, Exit, gravest_of_items
from archec.gather.tarball_inspection import Inspection, inspect
from archec.terminal.output import echo_json, note, show
from archec.terminal.progress import meter_for
from archec.tist import iso

_MOST_OTHERS = 20


@click.command("check-tarball")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@report_options
def check_tarball(files: tuple[Path, ...], as_json: bool, config_file: Path | None) -> None:
    """Check tarballs for damage, and show their contents.

    Reads each FILE to its end and verifies all of its checksums. Shows the date that gathering would give it and why,
    its archives, the number of templates, and files that would be ignored. Writes nothing and needs no archive. The
    exit code is 8 if a FILE is damaged, 1 if one is not a tarball, 2 if gathering one requires --as-of, because its
    date is unclear. With --json, prints one object per ignored file, {"type": "other", ...}, then one for the tarball,
    {"type": "tarball", ...}.

    Example: archec check-tarball data/tarballs/RePEc_2024-06-30.tar.gz
    """
    config = load_or_default(config_file)
    codes: set[Exit] = set()
    with meter_for() as meter:
        for file in files:
            others: list[str] = []

            def other(path: str, file: Path = file, others: list[str] = others) -> None:
                if as_json:
                    echo_json({"type": "other", "source": str(file), "path": path})
                elif len(others) < _MOST_OTHERS:
                    others.append(path)

            try:
                found = inspect(file, config, meter, on_other=other)
            except DataSetError as error:
                note(error)
                codes.add(error.exit_code)
                continue
            if found.damage is not None:
                codes.add(Exit.DAMAGED)
            elif not found.date:
                codes.add(Exit.USAGE)
            show({"type": "tarball", **found.as_value()}, *_table(found, others), as_json=as_json)
    leave(gravest_of_items(codes))


def _table(found: Inspection, others: list[str]) -> Iterator[str]:
    rows = [(found.source, "damaged" if found.damage else "whole")]
    if found.damage:
        rows.append(("damage", found.damage.message))
    rows += [("warning", problem.message) for problem in found.warnings]
    rows.append(("date", f"{iso(found.date)}, by {found.dated_by}" if found.date else found.dated_by))
    rows.append(("archives", f"{len(found.archives):,}: {' '.join(sorted(found.archives))}"))
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.templates.items()))
    rows.append(("templates", f"{sum(found.templates.values()):,}" + (f" ({kinds})" if kinds else "")))
    unread = f", {found.unreadable:,} without readable templates" if found.unreadable else ""
    rows.append(("files", f"{found.files:,}{unread}, {found.others:,} that would be ignored"))
    rows += [("", path) for path in others]
    if found.others > len(others):
        rows.append(("", f"... and {found.others - len(others):,} more (--json lists all)"))
    for at, (label, text) in enumerate(rows):
        yield f"  {label:<10} {text}" if at else f"{label}: {text}"
