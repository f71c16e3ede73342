"""Parsing ReDIF with clusters: archec, andrei-dubovik/repec's redif.py, ReDIF-perl.

Every *.rdf and *.redif below CORPUS_DIR (default: $ARCHEC_CORPUS/RePEc, else a synthetic corpus) is
decoded, cut into templates and parsed, in CPU time of one process. Python parsers have the files in
memory and go over them once before they are measured; ReDIF-perl reads them itself.

The peers are not part of archec: name the file redif.py of andrei-dubovik/repec with --redif-py (or
ARCHEC_BENCH_REDIF_PY), the unpacked folder of ReDIF-perl 2.69 with --redif-perl (or ARCHEC_BENCH_REDIF_PERL);
it needs the Perl modules HTML::Strip, HTML::Entities, Text::LevenshteinXS and Carp::Assert (PERL5LIB).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.outcome import Measure, Report
from benchmarks.running import ROOT, BenchmarkError, find, found_version, run

TOUCH = 256
_PERL = Path(__file__).with_name("redif_perl.pl")


def options(parser: argparse.ArgumentParser) -> None:
    """The command line of this benchmark."""
    corpus = os.environ.get("ARCHEC_CORPUS")
    default = Path(corpus) / "RePEc" if corpus else None
    parser.add_argument("corpus", type=Path, nargs="?", metavar="CORPUS_DIR", default=default)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--templates", type=int, default=5000, help="size of the synthetic corpus, if it is used")
    parser.add_argument("--redif-py", type=Path, metavar="FILE", default=os.environ.get("ARCHEC_BENCH_REDIF_PY"))
    parser.add_argument("--redif-perl", type=Path, metavar="DIR", default=os.environ.get("ARCHEC_BENCH_REDIF_PERL"))


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Runs the parsers in turn, one new process for each and round."""
    corpus = arguments.corpus
    if corpus is None:
        corpus = _synthetic(folder, arguments.templates)
        report.warnings.append("a synthetic corpus: the goals are those for real data (CORPUS_DIR)")
    if not corpus.is_dir():
        raise BenchmarkError(f"{corpus} is no folder")
    corpus = corpus.absolute()
    if not redif_files(corpus):
        raise BenchmarkError(f"{corpus} holds no *.rdf and no *.redif")
    commands = {"archec": _python("parse", corpus), "archec, scan and parse": _python("scan-parse", corpus)}
    commands |= _peers(arguments, corpus, folder, report)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            done = run(command, folder)
            report.loads.append(done.load)
            results[name].append(json.loads(done.output))
    first = results["archec"][0]
    group = f"{first['files']:,} files, {first['bytes'] / 1e6:.2f} MB, {first['templates']:,} templates: {corpus.name}"
    report.add(group, "templates that archec finds", "", [first["templates"]], f"{first['handles']:,} distinct ids")
    measures: dict[str, Measure] = {}
    for name, rounds in results.items():
        report.add(group, f"{name}: CPU", "s", [one["cpu"] for one in rounds], _found(rounds[0]))
        rates = [first["bytes"] / 1e6 / one["cpu"] for one in rounds]
        measures[name] = report.add(group, name, "MB/s", rates)
        report.add(group, name, "templates/s", [one["templates"] / one["cpu"] for one in rounds])
    for peer, goal in (("redif.py + collect", 2.0), ("ReDIF-perl", 10.0)):
        if peer in measures:
            for name in ("archec", "archec, scan and parse"):
                limit = goal if name == "archec" else None
                report.compare(measures[name], measures[peer], limit, name=f"{name} / {peer}, MB/s of CPU")


def _python(what: str, corpus: Path, *more: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "benchmarks.parse_child", what, corpus, *more]


def _synthetic(folder: Path, templates: int) -> Path:
    tarball, corpus = folder / "corpus.tar.gz", folder / "corpus"
    run([sys.executable, ROOT / "scripts" / "make_data_set.py", str(templates), tarball], folder)
    corpus.mkdir()
    run(["tar", "-xzf", tarball, "-C", corpus], folder)
    return corpus


def _peers(arguments: argparse.Namespace, corpus: Path, folder: Path, report: Report) -> dict[str, list[str | Path]]:
    """The commands of the peers that are there; the report says which are not, and why."""
    commands: dict[str, list[str | Path]] = {}
    if arguments.redif_py is None:
        report.skipped["redif.py"] = "not named (--redif-py FILE)"
    elif not Path(arguments.redif_py).is_file():
        report.skipped["redif.py"] = f"there is no {arguments.redif_py}"
    else:
        peer = Path(arguments.redif_py).absolute()
        commands["redif.py, no clusters"] = _python("redif-py", corpus, peer)
        commands["redif.py + collect"] = _python("redif-py-collect", corpus, peer)
    perl = find("perl")
    if arguments.redif_perl is None:
        report.skipped["ReDIF-perl"] = "not named (--redif-perl DIR)"
    elif perl is None:
        report.skipped["ReDIF-perl"] = "there is no perl"
    else:
        library = Path(arguments.redif_perl).absolute() / "lib"
        command: list[str | Path] = [perl, f"-I{library}", _PERL]
        try:
            version = run([*command, "--version"], folder).output.strip()
        except BenchmarkError as error:
            report.skipped["ReDIF-perl"] = "; ".join(str(error).splitlines()[2:4]) or str(error)
        else:
            listed = folder / "files"
            listed.write_text("\n".join(map(str, redif_files(corpus))), encoding="utf-8", errors="surrogateescape")
            commands["ReDIF-perl"] = [*command, listed]
            report.versions["ReDIF-perl"] = Path(arguments.redif_perl).name.removeprefix("ReDIF-perl-")
            report.versions["redif.spec"] = version
            report.versions["perl"] = found_version([perl, "-e", "print $^V"])
    return commands


def redif_files(corpus: Path) -> list[Path]:
    """The files by their name: ``*.rdf`` and ``*.redif`` in any case."""
    return sorted(path for path in corpus.rglob("*") if path.suffix.lower() in (".rdf", ".redif") and path.is_file())


def _found(result: dict[str, Any]) -> str:
    words = [f"{result['templates']:,} templates"]
    words += [f"{result[name]:,} {name.replace('_', ' ')}" for name in ("bad", "failed_files", "misread_files")
              if result.get(name)]  # fmt: skip
    return ", ".join(words)
