"""One pass of a parser over a corpus in memory, as a process of its own: ``WHAT CORPUS [REDIF_PY]``.

Prints JSON: CPU seconds of the pass, templates, and what went wrong. ``misread_files`` are those in which
the peer sees another text than archec does, line ends and byte-order marks aside.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archec.redif.encoding import decode
from archec.redif.items import Blob
from archec.redif.scan import scan
from archec.redif.template import parse_blob
from benchmarks.parse import redif_files


def main() -> None:
    """See the module's docstring."""
    what, corpus, *more = sys.argv[1:]
    blobs = [Blob(path.name, path.read_bytes()) for path in redif_files(Path(corpus))]
    extra: dict[str, int] = {}
    one_pass: Callable[[list[Blob]], int]
    if what == "parse":
        one_pass = _parse
        extra["handles"] = len({template.id for blob in blobs for template in parse_blob(blob)} - {""})
    elif what == "scan-parse":
        one_pass = _scan_parse
    else:
        peer = _module(Path(more[0]))
        one_pass = _peer_pass(peer, collect=what == "redif-py-collect")
        extra |= _misread(peer, blobs)
    one_pass(blobs)
    began = time.process_time()
    templates = one_pass(blobs)
    cpu = time.process_time() - began
    size = sum(len(blob.data) for blob in blobs)
    print(json.dumps({"cpu": cpu, "templates": templates, "files": len(blobs), "bytes": size} | extra))


def _parse(blobs: list[Blob]) -> int:
    count = 0
    for blob in blobs:
        for _ in parse_blob(blob):
            count += 1
    return count


def _scan_parse(blobs: list[Blob]) -> int:
    count = 0
    for blob in blobs:
        scan(blob)
        for _ in parse_blob(blob):
            count += 1
    return count


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("redif", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _peer_pass(peer: Any, *, collect: bool) -> Callable[[list[Blob]], int]:
    def one_pass(blobs: list[Blob]) -> int:
        count = 0
        for blob in blobs:
            try:
                text = peer.decode(blob.data)
            except RuntimeError:
                continue
            for template in peer.load(text):
                if collect:
                    peer.collect(template)
                count += 1
        return count

    return one_pass


def _misread(peer: Any, blobs: list[Blob]) -> dict[str, int]:
    failed = misread = 0
    for blob in blobs:
        try:
            text = peer.decode(blob.data)
        except RuntimeError:
            failed += 1
            continue
        seen = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        ours = decode(blob.data).data.decode("utf-8")
        misread += seen.split() != ours.split()
    return {"failed_files": failed, "misread_files": misread}


if __name__ == "__main__":
    main()
