"""Parsing ReDIF with clusters: archec compared with redif.py of andrei-dubovik/repec.

Every *.rdf and *.redif below CORPUS_DIR (default: $ARCHEC_CORPUS/RePEc, else a synthetic corpus) is
decoded, cut into templates and parsed, in CPU time of one process. Each pass is a process of its own,
which has the files in memory and goes over them once before it is measured.

The peer is not part of archec: name the file redif.py with --redif-py (or ARCHEC_BENCH_REDIF_PY).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from archec.redif.files import Blob
from archec.redif.template import parse_blob
from benchmarks.runner import ROOT, BenchmarkError, Report, in_turn, run

ARCHEC, PEER = "archec", "redif.py + collect"
GOAL = 1.8


def options(parser: argparse.ArgumentParser) -> None:
    corpus = os.environ.get("ARCHEC_CORPUS")
    default = Path(corpus) / "RePEc" if corpus else None
    parser.add_argument("corpus", type=Path, nargs="?", metavar="CORPUS_DIR", default=default)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--templates", type=int, default=5000, help="size of the synthetic corpus, if it is used")
    parser.add_argument("--redif-py", type=Path, metavar="FILE", default=os.environ.get("ARCHEC_BENCH_REDIF_PY"))


def measure(arguments: argparse.Namespace, folder: Path, report: Report) -> None:
    """Runs the parsers in turn, one new process for each and round."""
    corpus = arguments.corpus
    if corpus is None:
        corpus = _synthetic(folder, arguments.templates)
        report.warnings.append("a synthetic corpus: the goals are those for real data (CORPUS_DIR)")
    if not corpus.is_dir():
        raise BenchmarkError(f"{corpus} is no folder")
    corpus = corpus.absolute()
    if not _redif_files(corpus):
        raise BenchmarkError(f"{corpus} holds no *.rdf and no *.redif")
    command = [sys.executable, "-m", "benchmarks.parse", corpus]
    programs = {ARCHEC: lambda _: run(command, folder)}
    if arguments.redif_py is None:
        report.skipped["redif.py"] = "not named (--redif-py FILE)"
    elif not Path(arguments.redif_py).is_file():
        report.skipped["redif.py"] = f"there is no {arguments.redif_py}"
    else:
        peer = Path(arguments.redif_py).absolute()
        programs[PEER] = lambda _: run([*command, peer], folder)
    done = in_turn(arguments.rounds, programs)
    found = {name: [json.loads(one.output) for one in runs] for name, runs in done.items()}
    first = found[ARCHEC][0]
    group = f"{first['files']:,} files, {first['bytes'] / 1e6:.2f} MB, {first['templates']:,} templates: {corpus.name}"
    measures = {}
    for name, passes in found.items():
        note = f"{passes[0]['templates']:,} templates, {passes[0]['failed']:,} files failed"
        rates = [one["bytes"] / 1e6 / one["cpu"] for one in passes]
        measures[name] = report.add(group, name, "MB/s of CPU", rates, note)
        report.add(group, name, "templates/s", [one["templates"] / one["cpu"] for one in passes])
    if PEER in measures:
        report.compare(measures[ARCHEC], measures[PEER], f"{ARCHEC} / {PEER}, MB/s of CPU", least=GOAL)


def _synthetic(folder: Path, templates: int) -> Path:
    tarball, corpus = folder / "corpus.tar.gz", folder / "corpus"
    run([sys.executable, ROOT / "scripts" / "make_data_set.py", str(templates), tarball], folder)
    corpus.mkdir()
    run(["tar", "-xzf", tarball, "-C", corpus], folder)
    return corpus


def _redif_files(corpus: Path) -> list[Path]:
    return sorted(path for path in corpus.rglob("*") if path.suffix.lower() in (".rdf", ".redif") and path.is_file())


# -- the process that parses: CORPUS [REDIF_PY] -----------------------------------------------------


def main() -> None:
    """Goes over a corpus in memory twice, and prints what the second pass found and cost as JSON."""
    corpus, *peer = map(Path, sys.argv[1:])
    blobs = [Blob(path.name, path.read_bytes()) for path in _redif_files(corpus)]
    module = _module(peer[0]) if peer else None
    for _ in range(2):
        templates = failed = 0
        began = time.process_time()
        for blob in blobs:
            try:
                templates += sum(1 for _ in (parse_blob(blob) if module is None else _parsed_by(module, blob.data)))
            except RuntimeError:  # what redif.py raises for a file that it cannot decode
                failed += 1
        cpu = time.process_time() - began
    size = sum(len(blob.data) for blob in blobs)
    print(json.dumps({"cpu": cpu, "templates": templates, "failed": failed, "files": len(blobs), "bytes": size}))


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("redif", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parsed_by(module: Any, data: bytes) -> Iterator[object]:
    for template in module.load(module.decode(data)):
        yield module.collect(template)


if __name__ == "__main__":
    main()
