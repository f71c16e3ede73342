"""Those who fetch: each gets a workload and a new folder, and must end with every file in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.running import BenchmarkError, Finished, archec, found_version, run

__all__ = ["Workload", "archec_gather", "aria2c", "scrapy", "tools", "wget"]

_SPIDER = Path(__file__).with_name("scrapy_spider.py")
_FILE = 500
"""Templates in one file of archec's data set."""
_CONFIGURATION = """
ReDIF_directory: RePEc
fetch:
  concurrency: {concurrency}
  delay: 0
  per_host: 4
  robots: ignore
  allow_networks: [127.0.0.0/8]
"""


class Workload(NamedTuple):
    """URLs to fetch, all with bodies of ``size`` bytes (0: not looked at)."""

    name: str
    urls: Sequence[str]
    size: int

    @property
    def files(self) -> int:
        """How many there are."""
        return len(self.urls)

    def listed(self, folder: Path) -> Path:
        """The URLs in a file, one a line."""
        path = folder / "urls"
        path.write_text("".join(f"{url}\n" for url in self.urls), encoding="ascii")
        return path


def archec_gather(workload: Workload, folder: Path, concurrency: int) -> tuple[Finished, float]:
    """A run of archec over an archive that has the templates, and what it says that the files took, seconds."""
    place = folder / "RePEc" / "bmk" / "wpaper"
    place.mkdir(parents=True)
    for start in range(0, workload.files, _FILE):
        texts = [
            f"Template-Type: ReDIF-Paper 1.0\nTitle: Paper {n}\nAuthor-Name: A. Uthor\nFile-URL: {url}\n"
            f"File-Format: Application/pdf\nHandle: RePEc:bmk:wpaper:{n:06d}\n"
            for n, url in enumerate(workload.urls[start : start + _FILE], start)
        ]
        (place / f"{start:06d}.rdf").write_text("\n".join(texts), encoding="ascii")
    (folder / "config.yaml").write_text(_CONFIGURATION.format(concurrency=concurrency), encoding="ascii")
    archec(folder, "init", "--config", "config.yaml")
    archec(folder, "gather", "--no-fetch", "--json")
    done, report = archec(folder, "gather", "--json")
    if report["fobis"] != {"new": workload.files}:
        raise BenchmarkError(f"archec fetched {report['fobis']} of {workload.files} files")
    if workload.size and report["stored_bytes"] < workload.files * workload.size:
        raise BenchmarkError(f"archec stored {report['stored_bytes']} bytes")
    return done, report["seconds"]["files"]


def wget(program: str) -> Callable[[Workload, Path], Finished]:
    """wget -i, one file after the other over connections that it keeps, as it is by default."""
    return lambda workload, folder: _plain(
        workload, folder, [program, "--no-config", "-q", "-P", "out", "-i", workload.listed(folder)]
    )


def aria2c(program: str) -> Callable[[Workload, Path], Finished]:
    """aria2c -i -j16, as it is by default but for what it prints."""
    return lambda workload, folder: _plain(
        workload, folder, [program, "--no-conf", "-q", "-j16", "-d", "out", "-i", workload.listed(folder)]
    )


def scrapy(python: Path) -> Callable[[Workload, Path], Finished]:
    """Scrapy with 16 requests under way, a callback that writes each body."""
    return lambda workload, folder: _plain(workload, folder, [python, _SPIDER, workload.listed(folder), "out"])


def tools(program: str) -> str:
    """The version of a program."""
    return found_version([program, "--version"])


def _plain(workload: Workload, folder: Path, command: list[str | Path]) -> Finished:
    (folder / "out").mkdir()
    done = run(command, folder)
    sizes = [path.stat().st_size for path in (folder / "out").iterdir()]
    if len(sizes) != workload.files or set(sizes) != {workload.size}:
        raise BenchmarkError(f"{command[0]} left {len(sizes)} files, {sum(sizes)} bytes, of {workload.files}")
    return done
