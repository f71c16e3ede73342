"""What the tests of gathering share: an archive in a folder, tarballs, runs, and what must always hold."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import pty
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import click
import pytest

import archec
from archec.archive.lookup import find, held_at
from archec.archive.opening import Archive, is_behind, last_run, rebuild
from archec.archive.report import Report
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Obi
from archec.cli.main import cli, main
from archec.config import Config, as_yaml, load
from archec.gather.run import Options, gather
from archec.progress import Meter
from archec.store.durable import is_temp
from archec.store.journal import read_batches
from archec.store.layout import Layout, create, journals, open_layout

QUICK: dict[str, object] = {
    "workers": 1,
    "min_free": 0,
    "lost_grace": "0s",
    "fetch.revisit_min": "0s",
    "fetch.revisit_max": "0s",
    "fetch.delay": "0s",
    "fetch.retries": 0,
    "fetch.robots": "ignore",
    "fetch.workers": 1,
    "fetch.idle_timeout": "5s",
    "fetch.allow_networks": ["127.0.0.0/8"],
}
"""Settings that make a test short: on loopback, without waiting, everything due at once."""

ROOT = Path(archec.__file__).parents[1]


# -- archives and data sets ---------------------------------------------------------------------------


def make(folder: Path, settings: Mapping[str, object] | None = None, *, fanout: int = 0) -> Config:
    """A fresh archive in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(as_yaml({**QUICK, **(settings or {})}), encoding="utf-8")
    config = load(path, environ={})
    create(config.store_path, fanout=fanout)
    config.data_path.mkdir(parents=True, exist_ok=True)
    return config


def change(config: Config, settings: Mapping[str, object]) -> Config:
    """The archive with other settings."""
    path = config.base / "config.yaml"
    path.write_text(as_yaml({**QUICK, **settings}), encoding="utf-8")
    return load(path, environ={})


class Member(NamedTuple):
    """One member of a tarball: a file, a directory where ``data`` is None, a symbolic link where it is its target."""

    path: str
    data: bytes | str | None
    mtime: int = 1_000_000_000


def tarball(path: Path, members: Iterable[Member]) -> Path:
    """Writes an uncompressed or, by its name, a gzip tarball; gives its path."""
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.mtime = member.mtime
            if member.data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif isinstance(member.data, str):
                info.type, info.linkname = tarfile.SYMTYPE, member.data
                tar.addfile(info)
            else:
                info.size = len(member.data)
                tar.addfile(info, io.BytesIO(member.data))
    return path


def template(handle: str, title: str = "A title", urls: Sequence[str] = ()) -> str:
    """A small paper, article by article the same but for its title."""
    files = "".join(f"File-URL: {url}\n" for url in urls)
    return f"Template-Type: ReDIF-Paper 1.0\nTitle: {title}\n{files}Handle: {handle}\n"


def write_papers(config: Config, urls: Sequence[str], *, archive: str = "aaa", title: str = "A title") -> None:
    """The current data set: one template for each URL."""
    folder = config.data_path / archive / "sss"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [template(f"RePEc:{archive}:sss:{n}", title, [url]) for n, url in enumerate(urls)]
    (folder / "papers.rdf").write_text("\n".join(texts), encoding="utf-8")


# -- runs ---------------------------------------------------------------------------------------------


def run(config: Config, file: Path | None = None, **options: object) -> Report:
    """One run in this process."""
    options.setdefault("fetch", file is None)
    if "accept" in options:
        options["accept"] = frozenset(options["accept"])  # type: ignore[call-overload]
    return gather(config, Options(file=file, **options), Meter())  # type: ignore[arg-type]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command line that runs this very code."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **(extra or {})}


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: bytes
    err: str


def archec_cli(
    config: Config | None, *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Done:
    """Runs ``python -m archec`` for real."""
    command = [sys.executable, "-m", "archec", *map(str, arguments)]
    if config is not None:
        command += ["--config", str(config.base / "config.yaml")]
    done = subprocess.run(command, capture_output=True, check=False, env=environment(env), cwd=cwd, timeout=300)
    return Done(done.returncode, done.stdout, done.stderr.decode())


def archec_inline(
    config: Config | None, *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Done:
    """The same within this process, without a process's start: for what only prints and leaves."""
    command = ["archec", *map(str, arguments)]
    if config is not None:
        command += ["--config", str(config.base / "config.yaml")]
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGTERM, before)
    out.flush()
    return Done(code if isinstance(code, int) else -1, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]


def on_terminal(config: Config, *arguments: str, columns: int) -> tuple[str, str]:
    """What a command prints on a terminal of so many columns, and what on stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "archec", *arguments, "--config", str(config.base / "config.yaml")]
    env = environment({"COLUMNS": str(columns)})
    child = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=env)
    os.close(theirs)
    found = b""
    with suppress(OSError):  # EIO: the other side is closed
        while data := os.read(ours, 65536):
            found += data
    os.close(ours)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    return found.decode().replace("\r\n", "\n"), err.decode()


def commands(command: click.Command = cli, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands and their subcommands by name, in the order of the help; the first is ``archec`` itself."""
    yield name or "archec", command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for word in command.list_commands(context):
                found = command.get_command(context, word)
                assert found is not None
                yield from commands(found, f"{name} {word}".strip())


def start_cli(config: Config, *arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts ``python -m archec`` in a process group of its own."""
    command = [sys.executable, "-m", "archec", *map(str, arguments), "--config", str(config.base / "config.yaml")]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(env), start_new_session=True
    )


def resuming(config: Config, *, wanted: bool = True) -> list[str]:
    """``["--resume"]`` where that is wanted and there is a run that it would continue; else nothing."""
    last = last_run(open_layout(config.store_path))
    return ["--resume"] if wanted and last is not None and last.resumable else []


def kill(child: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> int:
    """Signals a process and waits for its end."""
    child.send_signal(number)
    child.communicate(timeout=60)
    return child.returncode


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a process, if it has not ended by itself, and closes its pipes."""
    if child.poll() is None:
        child.kill()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    child.wait(timeout=60)


def until(condition: Callable[[], bool], within: float = 30.0) -> bool:
    """Waits for something that another process does; whether it came."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


# -- worker processes ---------------------------------------------------------------------------------


@contextmanager
def killing(*, once: bool, name: str = "archec.workers") -> Iterator[set[int]]:
    """Kills the worker processes of this one with ``name`` in their command line, the first ones or all that come;
    gives those it has killed."""
    killed: set[int] = set()
    over = Event()

    def kill_them() -> None:
        while not over.wait(0.005) and not (once and killed):
            for pid in workers_of(os.getpid(), name) - killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)

    thread = Thread(target=kill_them)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def workers_of(parent: int, name: str) -> set[int]:
    """The processes that a process has started and that have not ended, with ``name`` in their command line."""
    found = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            state, above = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:2]
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if state != "Z" and int(above) == parent and name.encode() in command:
                found.add(pid)
    return found


def marked(mark: str) -> list[int]:
    """The processes with ``mark`` in their environment, but not those that nobody has waited for yet."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


# -- what must always hold ----------------------------------------------------------------------------


def catalogue_of(config: Config) -> closing[Catalogue]:
    """The catalogue of an archive, closed at the end of the block."""
    return closing(open_catalogue(config.database, base=config.base))


def obi_of(config: Config, id: str) -> Obi:  # noqa: A002
    """What the catalogue knows of an obi that it has."""
    with catalogue_of(config) as catalogue:
        return find(catalogue, id)


def behind(config: Config) -> bool:
    """Whether the catalogue has not followed the journals, so that a rebuilt one knows more."""
    with catalogue_of(config) as catalogue:
        return is_behind(open_layout(config.store_path), catalogue)


def lines(config: Config, *, everything: bool = False) -> list[str]:
    """The catalogue's dump."""
    with catalogue_of(config) as catalogue:
        return list(dump(catalogue, everything=everything))


def histories(config: Config) -> dict[str, dict[int, str | None]]:
    """The histories of all tobis and fobis that were ever held, by id."""
    with catalogue_of(config) as catalogue:
        found = {tobi.id: tobi.history.as_dict() for tobi in catalogue.all("tobi")}
        found |= {fobi.id: fobi.history.as_dict() for fobi in catalogue.all("fobi") if len(fobi.history)}
        return found


def outcomes(config: Config) -> dict[str, str]:
    """The outcome of the last visit of every fobi, ``""`` where there was none."""
    with catalogue_of(config) as catalogue:
        return {fobi.id: fobi.visit.outcome if fobi.visit else "" for fobi in catalogue.all("fobi")}


def store_files(layout: Layout) -> dict[str, str]:
    """All that lies in the obi store proper: relative path -> sha256 of a file, ``-> target`` of a link."""
    found: dict[str, str] = {}
    for folder, _, names in os.walk(layout.root):
        for name in names:
            path = Path(folder, name)
            relative = str(path.relative_to(layout.root))
            if relative.count("/") < 3:
                continue
            if path.is_symlink():
                found[relative] = f"-> {path.readlink()}"
            else:
                found[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def temporary_files(config: Config) -> list[str]:
    """Whatever a run should not leave: temporary files in the store, scratch space."""
    left = [str(path) for path in config.store_path.rglob("*") if is_temp(path.name)]
    return left + ([str(path) for path in config.work_path.iterdir()] if config.work_path.exists() else [])


def check(config: Config, *, whole: bool = True) -> None:
    """Asserts invariants 2, 3 and 5: all that is known resolves to its bytes; no leavings (where a run has
    ended: ``whole``); a rebuilt catalogue is the same to the byte."""
    layout = open_layout(config.store_path)
    with catalogue_of(config) as catalogue:
        for obi in (*catalogue.all("tobi"), *catalogue.all("fobi")):
            check_normal(obi.id, obi.history.as_dict())
            assert set(obi.notes) == set(obi.history.tists), obi.id
            for tist, sha256 in obi.history:
                if sha256 is None:
                    continue
                assert sha256 in obi.versions or obi.notes[tist].kind == "restated", obi.id
                held = held_at(Archive(config, layout, catalogue), obi, tist)
                with held.open(layout) as file:
                    data = file.read()
                assert (held.tist, hashlib.sha256(data).hexdigest()) == (tist, sha256), obi.id
                if sha256 in obi.versions:
                    assert obi.versions[sha256].size == len(data), obi.id
    if whole:
        assert temporary_files(config) == []
    check_journals(layout)
    check_rebuild(config)


def check_normal(obi: str, history: Mapping[int, str | None]) -> None:
    """Asserts that a history holds changes only, and does not begin with a loss."""
    states = list(history.values())
    assert list(history) == sorted(history), obi
    assert not states or states[0] is not None, obi
    assert all(a != b for a, b in pairwise(states)), obi


def check_journals(layout: Layout) -> None:
    """Asserts that nothing is told twice: no incidence is put by two batches in the same way in a row."""
    last: dict[bytes, bytes] = {}
    for journal in journals(layout):
        for batch in read_batches(journal.path):
            for line in batch.lines:
                if line.startswith(b'{"type":"obi"'):
                    obi = line.split(b'"id":"', 1)[1].split(b'"', 1)[0]
                    assert last.get(obi) != line, f"{obi!r} is journalled twice: {line!r}"
                    last[obi] = line


def check_rebuild(config: Config) -> None:
    """Asserts invariant 3."""
    url = "sqlite:///rebuilt.sqlite"
    for path in config.base.glob("rebuilt.sqlite*"):
        path.unlink()
    fresh = open_catalogue(url, base=config.base, create=True)
    try:
        rebuild(open_layout(config.store_path), fresh)
    finally:
        fresh.close()
    other = dataclasses.replace(config, database=url)
    assert lines(other, everything=True) == lines(config, everything=True)
