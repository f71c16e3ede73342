#!/usr/bin/env python3
"""Makes a synthetic RePEc data set as a tarball, in the shapes and sizes of the real one.

    python scripts/make_data_set.py TEMPLATES OUT.tar.gz [--changed SHARE] [--seed N]

About 3.2 templates a file and five files in six with one only, a median of 1.5 kB a template, 13 % of the
templates repeat a handle of another file, six encodings and line ends, 1.3 File-URLs a work. The same
arguments give the same bytes; ``--changed`` alters the texts of that share of the works.
"""

from __future__ import annotations

import argparse
import random
import sys
import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

REPEATED = 0.13
HOSTS = 400
WORDS = (
    "market", "growth", "labour", "wage", "policy", "trade", "model", "evidence", "panel", "shock", "price", "risk",
    "credit", "bank", "tax", "firm", "household", "inequality", "education", "health", "innovation", "network",
    "monetary", "fiscal", "exchange", "rate", "inflation", "capital", "demand", "supply", "equilibrium", "learning",
    "uncertainty", "information", "contract", "auction", "game", "theory", "estimation", "data", "regional",
    "urban", "rural", "development", "migration", "energy", "climate", "emission", "productivity", "technology",
    "export", "import", "economía", "política", "prévision", "économétrie", "Wachstum", "für", "über", "señal",
    "coûts", "naïve",
)  # fmt: skip


def words(rnd: random.Random, count: int) -> str:
    return " ".join(rnd.choices(WORDS, k=count))


def work(rnd: random.Random, archive: str, series: str, item: str, salt: int) -> str:
    lines = ["Template-Type: ReDIF-Paper 1.0" if rnd.random() < 0.25 else "Template-Type: ReDIF-Article 1.0"]
    for _ in range(rnd.choice((1, 1, 2, 2, 3))):
        name = words(rnd, 2).title()
        lines += [f"Author-Name: {name}", f"Author-Name-First: {name.split()[0]}", f"Author-Email: {item}@example.org"]
        if rnd.random() < 0.4:
            lines.append(f"Author-Workplace-Name: University of {words(rnd, 1).title()}")
    lines.append(f"Title: {words(rnd, rnd.randint(5, 14)).capitalize()}")
    abstract = words(rnd, rnd.randint(40, 190))
    lines.append("Abstract: " + abstract[:400])
    lines += ["  " + abstract[i : i + 300] for i in range(400, len(abstract), 300)]
    if salt:
        lines.append(f"Note: revised {salt}")
    lines += [f"Creation-Date: {rnd.randint(1990, 2026)}", f"Keywords: {words(rnd, 5)}", "Classification-JEL: E32, C5"]
    for n in range(rnd.choice((1, 1, 1, 1, 2))):
        host = f"www{rnd.randrange(HOSTS)}.{archive}.example.org"
        lines += [
            f"File-URL: http://{host}/RePEc/{archive}/{series}/papers/{item}-{n}.pdf",
            "File-Format: Application/pdf",
            "File-Function: Full text",
        ]
    lines.append(f"Handle: RePEc:{archive}:{series}:{item}")
    return "\n".join(lines) + "\n"


def encode(rnd: random.Random, text: str) -> bytes:
    kind = rnd.random()
    if kind < 0.45:
        return text.encode()
    if kind < 0.65:
        return text.replace("\n", "\r\n").encode()
    if kind < 0.80:
        return b"\xef\xbb\xbf" + text.encode()
    if kind < 0.95:
        return text.replace("\n", "\r\n").encode("cp1252", "replace")
    return b"\xff\xfe" + text.encode("utf-16-le")


def files(count: int, changed: float, seed: int) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of each file, in the order of a directory walk."""
    rnd = random.Random(seed)
    other = random.Random(seed + 1)
    made = number = 0
    archives = max(2, count // 3000)
    for a in range(archives):
        archive = code(a)
        yield f"RePEc/{archive}/{archive}arch.rdf", (
            f"Template-Type: ReDIF-Archive 1.0\nHandle: RePEc:{archive}\nName: Archive {archive}\n"
            f"URL: http://www.{archive}.example.org/RePEc/{archive}/\nMaintainer-Email: m@example.org\n"
        ).encode()
        yield f"RePEc/{archive}/{archive}seri.rdf", (
            f"Template-Type: ReDIF-Series 1.0\nHandle: RePEc:{archive}:series\nName: Papers\n"
            "Maintainer-Email: m@example.org\n"
        ).encode()
        made += 2
        last = a == archives - 1
        goal = count if last else made + (count - made) // (archives - a)
        recent: list[str] = []
        while made < goal:
            size = 1 if rnd.random() < 0.83 else rnd.randint(2, 26)
            texts = []
            for _ in range(min(size, goal - made)):
                if recent and rnd.random() < REPEATED:
                    item = rnd.choice(recent)
                else:
                    number += 1
                    item = f"{number:08d}"
                    recent.append(item)
                    del recent[:-50]
                salt = 1 if changed and other.random() < changed else 0
                texts.append(work(rnd, archive, "series", item, salt))
                made += 1
            yield f"RePEc/{archive}/series/{number:08d}-{made:08d}.rdf", encode(rnd, "\n".join(texts))


def code(number: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return letters[number // 676 % 26] + letters[number // 26 % 26] + letters[number % 26]


def write(out: BinaryIO, count: int, changed: float, seed: int) -> None:
    packer = zlib.compressobj(4, zlib.DEFLATED, 31)
    for path, data in files(count, changed, seed):
        info = tarfile.TarInfo(path)
        info.size, info.mtime = len(data), 1_700_000_000
        block = info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)
        out.write(packer.compress(block))
    out.write(packer.compress(bytes(10240)))
    out.write(packer.flush())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", type=int)
    parser.add_argument("out", help="a path, or - for standard output")
    parser.add_argument("--changed", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.out == "-":
        write(sys.stdout.buffer, args.templates, args.changed, args.seed)
        return
    with open(args.out, "wb") as out:
        write(out, args.templates, args.changed, args.seed)


if __name__ == "__main__":
    main()
