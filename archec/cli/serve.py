"""``archec serve``: the HTTP server."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
from pathlib import Path

import click

from archec.archive.follow import is_behind
from archec.archive.opening import Archive
from archec.cli.archive import opened
from archec.cli.options import config_option
from archec.oai.follow import Follower
from archec.oai.index import open_index
from archec.oai.items import ItemReader
from archec.oai.repository import NOWHERE, make_repository
from archec.oai.router import OaiCapability
from archec.oai.sets import SetRules
from archec.server.app import make_app
from archec.server.observe import log_accesses
from archec.server.run import listen, make_server
from archec.store.journal import journals
from archec.terminal.output import note


@click.command()
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Listen on this port; 0: any free port.")
@config_option
def serve(host: str | None, port: int | None, config_file: Path | None) -> None:
    """Serve the archive over HTTP: OAI-PMH at /oai, /healthz, /metrics.

    Only reads the archive; runs may take place at the same time, and what they commit is served seconds later.
    Stops gracefully on SIGTERM and SIGINT. Put a web server with TLS in front of it.
    """
    with opened(config_file) as archive:
        _serve(archive, host, port)


def _serve(archive: Archive, host: str | None, port: int | None) -> None:
    config = archive.config
    server = dataclasses.replace(
        config.server,
        host=config.server.host if host is None else host,
        port=config.server.port if port is None else port,
    )
    logging.basicConfig(level=logging.INFO, format="archec: %(message)s")
    log_accesses(server.access_log, config.base)
    with contextlib.ExitStack() as stack:
        index = open_index(config.database, config.path(config.oai.index))
        stack.callback(index.close)
        repository = make_repository(config, index, ItemReader(archive.layout, archive.catalogue))
        if repository.domain == NOWHERE:
            note("set server.url or oai.repositoryIdentifier before harvesters come")
        follower = Follower(
            archive.catalogue,
            index,
            SetRules(config.oai.sets, config.oai.collections),
            has_run=lambda run: any(journal.tist == run for journal in journals(archive.layout)),
            is_complete=lambda: not is_behind(archive.layout, archive.catalogue),
        )
        follower.check()
        listener = stack.enter_context(listen(server))
        note(f"serving http://{_address(listener)}/oai")
        running = make_server(make_app([OaiCapability(config, repository, follower)]), server)
        # After a graceful stop uvicorn raises the signal that it caught once more.
        with contextlib.suppress(KeyboardInterrupt):
            running.run(sockets=[listener])


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
