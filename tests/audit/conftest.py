"""Fixtures of the audit's tests: one archive with all that an archive can hold, gathered once and copied."""

from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from audit_support import World, clone, gather_world


@pytest.fixture(scope="session")
def pristine(memory_folder: Callable[[], Path]) -> World:
    """The archive as it was gathered; only to be read."""
    return gather_world(memory_folder() / "pristine")


@pytest.fixture
def world(pristine: World, memory_folder: Callable[[], Path]) -> World:
    """A copy of it, to be damaged."""
    return clone(pristine, memory_folder() / "damaged")


@pytest.fixture
def served(pristine: World) -> Iterator[str]:
    """The URL of the sound archive's folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Nothing to the terminal."""

    handler = partial(Quiet, directory=str(pristine.config.store_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()
