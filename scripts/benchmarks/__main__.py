"""scripts/bench: archec compared with its peers, measured in the same run (docs/benchmarks.md).

Every benchmark prints medians, ratios with their goals, versions, the machine, the date and how much CPU
others used meanwhile; with --json the same as one JSON document on stdout. Peers that are not there are
left out, and it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path

import archec
from benchmarks.runner import BUSY, BenchmarkError, Report, Watch, about, file_creation, touch_memory

BENCHMARKS = {
    name: import_module(f"benchmarks.{name}")
    for name in (
        "parse", "templates", "fetch", "catalogue", "oai", "export", "lists", "reread", "verify", "runs", "seal",
        "access", "fileset",
    )
}  # fmt: skip
SLOW_CREATION = 80.0
"""Microseconds to create a file from which on something is wrong with the file system."""
FORGOTTEN = 310.0
"""Seconds after a large deletion in which ext4 is slow to create files."""


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON document")
    common.add_argument("--folder", type=Path, help="where to make the new folder that is worked in (default: /tmp)")
    common.add_argument("--keep", action="store_true", help="leave that folder where it is, and say which it is")
    common.add_argument("--no-wait", action="store_true", help="begin also where it takes long to create a file")
    common.add_argument("--probe", type=int, default=5000, help="files to create, to see how long it takes")
    common.add_argument("--touch", type=int, default=1024, metavar="MB", help="memory to touch first")
    top = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="benchmark", required=True)
    for name, module in BENCHMARKS.items():
        text = (module.__doc__ or "").strip().replace("%", "%%")
        one = commands.add_parser(
            name,
            parents=[common],
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.options(one)
    return top


def main() -> None:
    arguments = parser().parse_args()
    try:
        parent = arguments.folder or Path(tempfile.gettempdir())
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f"archec-bench-{arguments.benchmark}-", dir=parent))
    except OSError as error:
        raise SystemExit(f"scripts/bench: {error.filename}: {error.strerror}") from error
    os.chmod(scratch, 0o755)  # a web server that runs as nobody reads what is in it
    try:
        report = measured(arguments, scratch)
    except BenchmarkError as error:
        raise SystemExit(f"scripts/bench: {error}") from error
    finally:
        if arguments.keep:
            say(f"kept: {scratch}")
        else:
            say(f"removing {scratch}")
            shutil.rmtree(scratch, ignore_errors=True)
    if arguments.json:
        json.dump(report.as_value(), sys.stdout, indent=2)
        print()
    else:
        print(report.as_text(), end="")


def measured(arguments: argparse.Namespace, scratch: Path) -> Report:
    """The report of a benchmark that is run in ``scratch``."""
    options = vars(arguments).items()
    report = Report(
        arguments.benchmark,
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        about(scratch),
        {name: value if isinstance(value, bool | int | float | list) else str(value) for name, value in options},
        {"archec": archec.__version__, "Python": platform.python_version()},
    )
    touch_memory(arguments.touch * 2**20)
    settle(arguments, scratch)
    probe(scratch / "probe before", arguments.probe, report, "before")
    watch = Watch()
    BENCHMARKS[arguments.benchmark].measure(arguments, scratch, report)
    report.load = watch.load()
    probe(scratch / "probe after", arguments.probe, report, "afterwards")
    if report.load.others > BUSY:
        share = f"others used {report.load.others:.2f} cores on average"
        report.warnings.append(f"the machine was busy ({share}): repeat it when it is quiet")
    return report


def probe(folder: Path, files: int, report: Report, when: str) -> None:
    """Puts into the report how long it takes to create a file."""
    creation = file_creation(folder, files)
    report.machine[f"file_creation_{when}"] = f"{creation:.0f} µs to create a file {when}"
    if creation > SLOW_CREATION:
        report.warnings.append(f"{creation:.0f} µs to create a file {when}: a busy disk, or much was just deleted")


def settle(arguments: argparse.Namespace, scratch: Path) -> None:
    """Waits until large deletions, by whomever, are forgotten.

    ext4 passes over the inodes that were freed in the last five minutes, one by one, for every file that is
    created: it takes up to a hundred times as long.
    """
    until = time.monotonic() + FORGOTTEN
    number = 0
    while not arguments.no_wait and time.monotonic() < until:
        number += 1
        if file_creation(scratch / f"probe {number}", arguments.probe) <= SLOW_CREATION:
            return
        say("It takes long to create a file, which passes in five minutes: waiting (--no-wait).")
        time.sleep(30)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
