"""scripts/bench: archec beside its peers, measured in the same run (docs/benchmarks.md).

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
from pathlib import Path
from types import ModuleType

import archec
from benchmarks import catalogue, export, fetch, lists, oai, parse, templates, verify
from benchmarks.machine import BUSY, Watch, about, file_creation, touch_memory
from benchmarks.outcome import Report
from benchmarks.running import BenchmarkError

BENCHMARKS: dict[str, ModuleType] = {
    "parse": parse, "templates": templates, "fetch": fetch, "catalogue": catalogue, "oai": oai, "export": export,
    "lists": lists, "verify": verify,
}  # fmt: skip
_SLOW_CREATION = 80.0
"""Microseconds to create a file from which on something is wrong with the file system."""
_REMOVED = ".archec-bench-removed"
_SHORT = 20.0
"""Benchmarks that took less, in seconds, have removed nothing to speak of."""
_REST = 310.0
"""Seconds after a large deletion in which ext4 is slow to create files."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON document")
    common.add_argument("--folder", type=Path, help="where to make the new folder that is worked in (default: /tmp)")
    common.add_argument("--keep", action="store_true", help="leave that folder where it is, and say which it is")
    common.add_argument("--no-wait", action="store_true", help="begin at once after another benchmark's deletions")
    common.add_argument("--probe", type=int, default=5000, help="files to create, to see how long it takes")
    common.add_argument("--touch", type=int, metavar="MB", help="memory to touch first (default: by benchmark)")
    top = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="benchmark", required=True)
    for name, module in BENCHMARKS.items():
        text = (module.__doc__ or "").strip()
        one = commands.add_parser(
            name,
            parents=[common],
            help=text.splitlines()[0].replace("%", "%%"),
            description=text.replace("%", "%%"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.options(one)
    return top


def main() -> None:
    """Runs one benchmark."""
    arguments = parser().parse_args()
    module = BENCHMARKS[arguments.benchmark]
    try:
        if arguments.folder is not None:
            arguments.folder.mkdir(parents=True, exist_ok=True)
        parent = arguments.folder or Path(tempfile.gettempdir())
        if not arguments.no_wait:
            _rest(parent / _REMOVED)
        scratch = Path(tempfile.mkdtemp(prefix=f"archec-bench-{arguments.benchmark}-", dir=parent))
    except OSError as error:
        raise SystemExit(f"scripts/bench: {error.filename}: {error.strerror}") from error
    os.chmod(scratch, 0o755)  # a web server that runs as nobody reads what is in it
    began = time.monotonic()
    try:
        report = _prepared(arguments, module, scratch)
        module.measure(arguments, scratch, report)
        _probe(scratch / "probe after", arguments.probe, report, "afterwards")
    except BenchmarkError as error:
        raise SystemExit(f"scripts/bench: {error}") from error
    finally:
        if arguments.keep:
            say(f"kept: {scratch}")
        else:
            say(f"{time.monotonic() - began:.0f} s; removing {scratch}")
            shutil.rmtree(scratch, ignore_errors=True)
            if time.monotonic() - began > _SHORT:
                (parent / _REMOVED).touch()
    if report.load.others > BUSY:
        share = f"others used {report.load.others:.2f} cores on average"
        report.warnings.append(f"the machine was busy ({share}): repeat it when it is quiet")
    if arguments.json:
        json.dump(report.as_value(), sys.stdout, indent=2)
        print()
    else:
        print(report.as_text(), end="")


def _prepared(arguments: argparse.Namespace, module: ModuleType, scratch: Path) -> Report:
    """An empty report, after what must come before anything is measured."""
    options = {name: value for name, value in vars(arguments).items() if name not in ("benchmark", "json", "keep")}
    report = Report(
        arguments.benchmark,
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        about(scratch),
        {name: _plain(value) for name, value in options.items()},
        {"archec": archec.__version__, "Python": platform.python_version()},
    )
    touch_memory((module.TOUCH if arguments.touch is None else arguments.touch) * 2**20)
    _probe(scratch / "probe before", arguments.probe, report, "before")
    watch = Watch()
    time.sleep(0.5)
    others = watch.load().others
    if others > BUSY:
        say(f"WARNING: others use {others:.2f} cores of this machine now; numbers will be off.")
    return report


def _probe(folder: Path, files: int, report: Report, when: str) -> None:
    creation = file_creation(folder, files)
    report.machine[f"file_creation_{when}"] = f"{creation:.0f} µs to create a file {when}"
    if creation > _SLOW_CREATION:
        report.warnings.append(f"{creation:.0f} µs to create a file {when}: a busy disk, or much was just deleted")


def _rest(removed: Path) -> None:
    """Waits until the last benchmark's deletions here are forgotten."""
    try:
        left = removed.stat().st_mtime + _REST - time.time()
    except FileNotFoundError:
        return
    if left > 0:
        say(f"Waiting {left:.0f} s: ext4 is slow to create files after what the last benchmark removed (--no-wait).")
        time.sleep(min(left, _REST))


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def say(line: str) -> None:
    """For the person at the terminal."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
