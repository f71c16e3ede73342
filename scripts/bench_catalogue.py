"""What the catalogue's engines do per second: upserts, point reads, pages at any depth.

    python scripts/bench_catalogue.py [--rows 1000000] [--engine sqlite|mongodb] [--url URL] [--json]

Documents have the shape and size of RePEc's: ids in ascending order in lots of 2,000, 1.3 mentioned
files and one text each. Times are of this process (``cpu``) and of the clock (``wall``); a page's
are medians over 31 places around 10 % and 90 % of the rows. MongoDB is ``--url``, else the tests'
own server; SQLite is a new file in a new folder, which is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from hashlib import md5
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from archec.catalogue.interface import Catalogue  # noqa: E402
from archec.catalogue.model import (  # noqa: E402
    Changes,
    DueFobi,
    Position,
    Refipo,
    TextPlace,
    Tobi,
    TobiNote,
    TobiVersion,
)
from archec.catalogue.open import open_catalogue  # noqa: E402
from archec.history import History  # noqa: E402

LOT = 2000
PAGE = 1000
PLACES = 31
FIRST, SECOND = 1352481230, 1384017230


def digest(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def handle(i: int) -> str:
    return f"RePEc:a{i // 5000:05d}:wpaper:{i % 5000:06d}-x"


def urls(i: int) -> list[str]:
    return [f"http://www.arch{i // 5000:05d}.org/papers/wp{i % 5000:06d}-{k}.pdf" for k in range(1 + (i % 10 < 3))]


def tobi(i: int, *tists: int) -> Tobi:
    versions = {}
    for tist in tists:
        state = digest(f"{i}@{tist}")
        refs = tuple(Refipo(url, "Application/pdf") for url in urls(i))
        title = "The title of a paper about economics, of some length"
        versions[state] = TobiVersion(state, 1500, digest(f"text {state}"), "ReDIF-Paper 1.0", title, refs)
    notes = {
        tist: TobiNote(tist + 1, "new", f"RePEc/a{i // 5000:05d}/wpaper/x.rdf", i % 5000, "utf-8") for tist in tists
    }
    history = History(tists, tuple(versions))
    return Tobi(handle(i), handle(i), history, versions, notes, i // LOT // 50)


def lots(rows: range, batch: int, *tists: int) -> Iterator[Changes]:
    for start in range(rows.start, rows.stop, LOT):
        tobis = [tobi(i, *tists) for i in range(start, min(start + LOT, rows.stop))]
        mentioned = [url for i in range(start, min(start + LOT, rows.stop)) for url in urls(i)]
        vi = [TextPlace(version.text, tists[-1], t.id) for t in tobis for version in list(t.versions.values())[-1:]]
        yield Changes(Position(tists[-1], batch + start // LOT, start), tobis=tobis, mentioned=mentioned, vi=vi)


class Clock:
    """Sums CPU and clock time of the blocks it measures."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu += time.process_time() - cpu
        self.wall += time.perf_counter() - wall


def upserts(catalogue: Catalogue, rows: range, *tists: int) -> dict[str, float]:
    clock = Clock()
    for changes in lots(rows, 0, *tists):
        with clock.running():
            catalogue.write(changes)
    return {
        "rows": len(rows),
        "per_s": round(len(rows) / clock.wall),
        "cpu_us": round(clock.cpu / len(rows) * 1e6, 1),
        "wall_us": round(clock.wall / len(rows) * 1e6, 1),
    }


def point_reads(catalogue: Catalogue, rows: int, draw: random.Random) -> dict[str, float]:
    ids = [handle(draw.randrange(rows)) for _ in range(5000)]
    one, many = Clock(), Clock()
    with one.running():
        for obi in ids[:2000]:
            if obi not in catalogue.tobis((obi,)):
                raise SystemExit(f"{obi} is lost")
    with many.running():
        for i in range(0, len(ids), 500):
            if len(catalogue.tobis(set(ids[i : i + 500]))) != len(set(ids[i : i + 500])):
                raise SystemExit("documents are lost")
    return {"one_per_s": round(2000 / one.wall), "by_500_per_s": round(len(ids) / many.wall)}


def pages(name: str, rows: int, draw: random.Random, read: Callable[[int], int]) -> dict[str, float]:
    """Milliseconds of a page at 10 % and at 90 % of the rows, turn by turn, and their ratio."""
    times: dict[float, list[float]] = {0.1: [], 0.9: []}
    for _ in range(PLACES + 2):
        for depth, taken in times.items():
            at = int(rows * (depth + draw.uniform(-0.02, 0.02)))
            clock = Clock()
            with clock.running():
                got = read(at)
            if got != min(PAGE, rows):
                raise SystemExit(f"{name}: a page of {got} rows at {at}")
            taken.append(clock.wall * 1000)
    shallow, deep = (statistics.median(taken[2:]) for taken in times.values())
    return {"ms_at_10": round(shallow, 2), "ms_at_90": round(deep, 2), "ratio": round(deep / shallow, 2)}


def scan(catalogue: Catalogue) -> dict[str, float]:
    clock, count = Clock(), 0
    with clock.running():
        for _ in catalogue.scan_tobis():
            count += 1
    return {"rows": count, "cpu_us": round(clock.cpu / count * 1e6, 2), "wall_us": round(clock.wall / count * 1e6, 2)}


def counts(catalogue: Catalogue) -> dict[str, float]:
    clock = Clock()
    with clock.running():
        catalogue.counts()
    return {"wall_s": round(clock.wall, 2)}


def measure(catalogue: Catalogue, rows: int) -> dict[str, dict[str, float]]:
    draw = random.Random(1)
    some = range(rows // 2, rows // 2 + max(LOT, rows // 10))

    def by_id(at: int) -> int:
        return sum(1 for _ in islice(catalogue.all_tobis(handle(at)), PAGE))

    def by_stamp(at: int) -> int:
        return len(catalogue.changed_tobis(at // LOT // 50, handle(at), PAGE))

    def by_due(at: int) -> int:
        return sum(1 for _ in islice(catalogue.due(0, DueFobi(0, urls(at)[0])), PAGE))

    return {
        "first upsert": upserts(catalogue, range(rows), FIRST),
        "merge scan": scan(catalogue),
        "point reads": point_reads(catalogue, rows, draw),
        "page of 1000 by id": pages("by id", rows, draw, by_id),
        "page of 1000 by stamp": pages("by stamp", rows, draw, by_stamp),
        "page of 1000 by due": pages("by due", rows, draw, by_due),
        "counts": counts(catalogue),
        "second upsert": upserts(catalogue, some, FIRST, SECOND),
    }


@contextmanager
def opened(engine: str, url: str | None, folder: Path) -> Iterator[tuple[Catalogue, str]]:
    """An empty catalogue and the version of its engine."""
    if engine == "sqlite":
        catalogue = open_catalogue(url or "sqlite:///bench.sqlite", base=folder, create=True)
        yield catalogue, f"SQLite {sqlite3.sqlite_version}"
        catalogue.close()
        return
    import pymongo
    from mongod import Mongod, binary

    server = None
    if url is None:
        server = Mongod(binary(), folder / "data")
        server.start()
        url = server.url("archec_bench")
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(url)
    try:
        version = f"MongoDB {client.server_info()['version']}, pymongo {pymongo.version}"
        catalogue = open_catalogue(url, base=folder, create=True)
        if next(catalogue.scan_tobis(), None) is not None:
            raise SystemExit("this database holds a catalogue already: name an empty one")
        yield catalogue, version
        catalogue.close()
        client.drop_database(client.get_default_database("archec").name)
    finally:
        client.close()
        if server is not None:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=["sqlite", "mongodb"], default="sqlite")
    parser.add_argument("--url", help="an empty database of your own")
    parser.add_argument("--folder", type=Path, help="where to make the new folder (default: the system's)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rows < 5 * LOT:
        parser.error(f"--rows must be {5 * LOT} or more")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        folder = Path(scratch)
        with opened(arguments.engine, arguments.url, folder) as (catalogue, version):
            results = measure(catalogue, arguments.rows)
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    about = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "engine": version,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, Linux {platform.release()}",
        "rows": arguments.rows,
        "database_bytes": size,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if arguments.json:
        print(json.dumps({**about, "results": results}, indent=2))
        return
    for name, value in about.items():
        print(f"{name:24}{value:,}" if isinstance(value, int) else f"{name:24}{value}")
    for name, result in results.items():
        print(f"{name:24}{'  '.join(f'{key} {value:,}' for key, value in result.items())}")


if __name__ == "__main__":
    main()
