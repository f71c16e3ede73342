"""The real corpora, where they are at hand: the counts of their README come out."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from archec.redif.files import Blob, Unread
from archec.redif.precedence import place
from archec.redif.scan import RawTemplate, scan
from archec.redif.schema import kind_of
from archec.redif.source import open_source
from archec.redif.template import parse, parse_blob

CORPUS = Path(os.environ.get("ARCHEC_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the real corpora are not here; set ARCHEC_CORPUS")


def templates_of(path: Path) -> list[tuple[str, RawTemplate]]:
    with open_source(path, max_file=100_000_000) as source:
        items = list(source)
        assert source.whole
    assert not [item for item in items if isinstance(item, Unread)]
    return [(blob.path, raw) for blob in items if isinstance(blob, Blob) for raw in scan(blob).templates]


@needs_corpus
def test_counts_of_the_corpus() -> None:
    named = templates_of(CORPUS)
    assert len(named) == 4800
    assert len({raw.handle for _, raw in named if raw.handle}) == 4786
    assert len({raw.id for _, raw in named if raw.id}) == 4786
    kinds = Counter(kind_of(raw.kind).name for _, raw in named)
    assert kinds == {
        "ReDIF-Series": 1854,
        "ReDIF-Article": 1128,
        "ReDIF-Paper": 832,
        "ReDIF-Software": 512,
        "ReDIF-Archive": 236,
        "ReDIF-Chapter": 210,
        "ReDIF-Book": 22,
        "ReDIF-Person": 3,
        "ReDIF-Institution": 2,
        "ReDIF-Mirror 1.0": 1,
    }
    assert Counter(place(path).archive for path, _ in named) == {
        "all": 2584,
        "ann": 597,
        "biu": 260,
        "boc": 1,
        "ceu": 47,
        "edi": 2,
        "epo": 395,
        "inm": 811,
        "per": 3,
        "ten": 48,
        "usf": 52,
    }


@needs_corpus
def test_files_that_are_no_evidence_of_absence() -> None:
    with open_source(CORPUS / "RePEc", max_file=100_000_000) as source:
        unread = [item.path for item in source if isinstance(item, Blob) and not scan(item).read]
    assert unread == ["all/appseri.rdf", "all/asaseri.rdf", "all/bslseri.rdf", "all/bueseri.rdf"]


@needs_corpus
def test_the_full_parse_finds_what_the_scan_finds() -> None:
    with open_source(CORPUS / "RePEc", max_file=100_000_000) as source:
        blobs = [item for item in source if isinstance(item, Blob)]
    urls = 0
    for blob in blobs:
        raws, parsed = scan(blob).templates, list(parse_blob(blob))
        assert [(t.handle, t.id, t.line) for t in parsed] == [(raw.handle, raw.id, raw.line) for raw in raws]
        for raw, template in zip(raws, parsed, strict=True):
            again = parse(raw.text.decode(), path=blob.path, first_line=raw.line)
            assert again._replace(raws=()) == template._replace(raws=())
            urls += len(template.refipos)
    assert urls == 4071


@needs_corpus
@pytest.mark.parametrize(
    ("day", "handles"),
    [
        ("2016-04-20", 326),
        ("2016-09-19", 340),
        ("2017-04-26", 330),
        ("2017-07-25", 361),
        ("2019-05-08", 386),
        ("2025-01-31", 740),
        ("2025-02-01", 739),
        ("2026-05-05", 753),
    ],
)
def test_counts_of_the_dated_tarballs(day: str, handles: int) -> None:
    found = templates_of(CORPUS / "history" / f"RePEc-{day}.tar.gz")
    assert len({raw.handle for _, raw in found if raw.handle}) == handles
