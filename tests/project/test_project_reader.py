"""An archive can be read from docs/formats.md alone: a reader made of that page, without any of archec's code, checks
the chain of the journals, finds the bytes of every state, and writes what ``archec dump`` prints."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from readme_blocks import Played
from xxhash import xxh3_128_hexdigest

from archec.cli.main import cli

COLLECTIONS = {"tobi": ("mi", "vi"), "fobi": ("mo", "vo")}


def batches(archive: Path) -> Iterator[list[dict[str, Any]]]:
    """The lines of each batch, in the order of the runs; the chain of SHA-256 is checked."""
    before = "0" * 64
    for path in sorted((archive / "runs").iterdir(), key=lambda path: int(path.name.partition(".")[0])):
        with gzip.open(path) as file:
            lines = file.readlines()
        number, begin = 0, 0
        for end, line in enumerate(lines, 1):
            last = json.loads(line)
            if last["type"] != "batch":
                continue
            number += 1
            signed = b"".join(lines[begin:end]).rpartition(b',"sha256"')[0]
            assert (last["n"], last["lines"], last["prev"]) == (number, end - begin - 1, before)
            assert last["sha256"] == hashlib.sha256(signed).hexdigest()
            yield [json.loads(one) for one in lines[begin : end - 1]]
            before, begin = last["sha256"], end
        assert begin == len(lines)


def path_of(archive: Path, tist: int, obi: str) -> Path:
    digits = str(tist)[::-1]
    name = "".join(
        char if re.fullmatch(r"[A-Za-z0-9._~-]", char) else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in obi
    )
    if len(name) > 255:
        kept = re.sub(r"%[0-9A-F]?$", "", name[:222])
        name = f"{kept}~{xxh3_128_hexdigest(obi.encode())}"
    return archive / digits[:3] / digits[3:6] / digits[6:] / name


def contents(archive: Path, tist: int, obi: str) -> bytes:
    path = path_of(archive, tist, obi)
    if not path.exists():  # it redirected to the URL with, or without, the slash
        path = path_of(archive, tist, obi.removesuffix("/") if obi.endswith("/") else f"{obi}/")
    return path.read_bytes()


def read(archive: Path) -> Iterator[dict[str, Any]]:
    """The lines of the dump, from the journals and the files alone."""
    states: dict[tuple[str, str], dict[int, str | None]] = {}
    notes: dict[tuple[str, str, int], dict[str, Any]] = {}
    texts: dict[tuple[str, str], str] = {}
    for line in (line for batch in batches(archive) for line in batch if line["type"] == "obi"):
        kind, obi = line["kind"], line["id"]
        history = states.setdefault((kind, obi), {})
        for tist in line.get("drop", ()):
            history.pop(tist, None)
        history |= {int(tist): sha256 for tist, sha256 in line.get("put", {}).items()}
        notes |= {(kind, obi, int(tist)): note for tist, note in line.get("notes", {}).items()}
        if version := line.get("version"):
            texts[obi, version["sha256"]] = version.get("text")
    places: dict[tuple[str, str], tuple[int, str]] = {}
    for (kind, obi), history in states.items():
        md5: dict[str, str | None] = {}
        for tist, sha256 in history.items():
            note = notes[kind, obi, tist]
            data = None if sha256 is None else contents(archive, note.get("at", tist), obi)
            assert data is None or hashlib.sha256(data).hexdigest() == sha256
            md5[str(tist)] = None if data is None else hashlib.md5(data, usedforsecurity=False).hexdigest()
            if sha256 and (text := texts[obi, sha256]) and not note.get("target"):
                key = (COLLECTIONS[kind][1], text)
                places[key] = min(places.get(key, (tist, obi)), (tist, obi))
        if history:
            sha256s = {str(tist): sha256 for tist, sha256 in history.items()}
            yield {"collection": COLLECTIONS[kind][0], "id": obi, "h": md5, "s": sha256s}
    for (collection, text), (tist, obi) in places.items():
        yield {"collection": collection, "id": text, "at": {"tist": tist, "id": obi}}


def test_an_archive_is_read_from_the_page_of_formats_alone(played: Played) -> None:
    found = sorted(read(played.folder / "archive"), key=lambda one: (one["collection"], one["id"].encode()))
    mine = [json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for one in found]
    dumped = CliRunner().invoke(cli, ["dump", "--config", str(played.folder / "config.yaml")])
    assert mine == dumped.stdout.splitlines()
    assert len(mine) > 50
