"""``archec serve``: the HTTP server."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
from pathlib import Path

import click

from archec.cli.common import config_option, opened
from archec.oai.router import opened_oai
from archec.server.app import make_app
from archec.server.observe import log_accesses
from archec.server.run import listen, make_server
from archec.terminal.output import note


@click.command()
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Listen on this port; 0: any free port.")
@config_option
def serve(host: str | None, port: int | None, config_file: Path | None) -> None:
    """Serve the archive over HTTP.

    OAI-PMH at /oai, besides /healthz and /metrics. Only reads the archive; runs may take place at the same time,
    and what they commit is served seconds later. Stops gracefully on SIGTERM and SIGINT. Put a web server with TLS
    in front of it.
    """
    with opened(config_file) as archive:
        server = archive.config.server
        server = dataclasses.replace(
            server, host=server.host if host is None else host, port=server.port if port is None else port
        )
        logging.basicConfig(level=logging.INFO, format="archec: %(message)s")
        log_accesses(server.access_log, archive.config.base)
        with opened_oai(archive) as oai, listen(server) as listener:
            note(f"serving http://{_address(listener)}/oai")
            # After a graceful stop uvicorn raises the signal that it caught once more.
            with contextlib.suppress(KeyboardInterrupt):
                make_server(make_app([oai]), server).run(sockets=[listener])


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
