"""A real server over loopback, in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from archec.config import ServerConfig
from archec.server.run import listen, make_server, run

LOCAL = ServerConfig(host="127.0.0.1", port=0, access_log="")


@contextmanager
def running(app: ASGIApp, config: ServerConfig = LOCAL) -> Iterator[int]:
    """The port of a server that listens, and is stopped at the end."""
    with listen(config) as listener:
        server = make_server(app, config)
        thread = threading.Thread(target=run, args=(server, listener))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
