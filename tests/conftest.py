"""Fixtures of all tests: a clean environment, folders in memory, the demo's archive, a MongoDB server."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pymongo
import pytest
from hypothesis import HealthCheck
from mongod import Mongod, NoMongod, binary

from archec.config import Config

if TYPE_CHECKING:
    from gather_site import Site

# A machine that is busy with other tests may take any time for an example, and a fixture may serve all of them.
hypothesis.settings.register_profile(
    "archec", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
hypothesis.settings.load_profile("archec")

_PROXIES = {"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"}
_ROOM = 4_000_000_000


def pytest_configure() -> None:
    """Ctrl-C and SIGHUP work in what the tests start, also where a shell runs them in the background, or nohup, and has
    them ignored. Compiled modules are kept, else each of many hundred processes compiles them."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collectstart() -> None:
    """The garbage collector leaves the thousands of tests alone, while they are collected and later."""
    gc.disable()


def pytest_collection_finish() -> None:
    """See :func:`pytest_collectstart`."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """No setting and no proxy of whoever runs the tests; ``ARCHEC_TEST_*`` is for the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            ours = name.startswith("ARCHEC_") and not name.startswith("ARCHEC_TEST_")
            if ours or name.lower() in _PROXIES:
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Makes fresh folders on a file system in memory where there is one with room: hundreds of small archives."""
    base = "/dev/shm"
    if not os.access(base, os.W_OK) or shutil.disk_usage(base).free < _ROOM:
        base = str(tmp_path_factory.getbasetemp())
    top = Path(tempfile.mkdtemp(prefix="archec-test-", dir=base))
    try:
        yield lambda: Path(tempfile.mkdtemp(dir=top))
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def folder(memory_folder: Callable[[], Path]) -> Path:
    """A fresh folder, in memory where that is possible."""
    return memory_folder()


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server on loopback whose answers a test sets."""
    from gather_site import Site  # not above: the lower rooms' tests need none of the upper ones

    with Site() as made:
        yield made


@pytest.fixture(scope="module")
def demo(memory_folder: Callable[[], Path]) -> Config:
    """The archive of the demo, after its three gatherings; only to be read."""
    from archec.demo.show import make_archive, play  # as above
    from archec.progress import Meter

    config = make_archive(memory_folder() / "demo")
    for _ in play(config, Meter()):
        pass
    return config


@pytest.fixture(scope="session")
def mongod_binary() -> Path:
    """The path of a mongod that runs here; skips with the reason where there is none."""
    try:
        return binary()
    except NoMongod as reason:
        pytest.skip(f"no MongoDB server: {reason}")


@pytest.fixture(scope="session")
def mongodb_server(request: pytest.FixtureRequest, memory_folder: Callable[[], Path]) -> Iterator[str]:
    """The URL of a server up to the database's name: ``$ARCHEC_TEST_MONGODB``, else one of our own."""
    given = os.environ.get("ARCHEC_TEST_MONGODB")
    if given:
        yield given
        return
    mongod = Mongod(request.getfixturevalue("mongod_binary"), memory_folder() / "data")
    try:
        mongod.start()
        yield mongod.url("")
    except NoMongod as reason:
        pytest.skip(f"no MongoDB server: {reason}")
    finally:
        mongod.kill()


@pytest.fixture(scope="session")
def fresh_mongodb_url(mongodb_server: str) -> Iterator[Callable[[], str]]:
    """Gives URLs with databases that are fresh, and dropped at the end."""
    base, _, options = mongodb_server.partition("?")
    scheme, _, rest = base.partition("://")
    host, _, database = rest.partition("/")
    if "@" in host and "authsource=" not in options.lower():
        options += f"&authSource={database or 'admin'}"
    names: list[str] = []

    def fresh() -> str:
        names.append(f"archec_test_{uuid.uuid4().hex[:16]}")
        return f"{scheme}://{host}/{names[-1]}?{options.lstrip('&')}".rstrip("?")

    yield fresh
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(mongodb_server)
    try:
        for name in names:
            client.drop_database(name)
    finally:
        client.close()


@pytest.fixture
def mongodb_url(fresh_mongodb_url: Callable[[], str]) -> str:
    """The URL of a database that is fresh."""
    return fresh_mongodb_url()
