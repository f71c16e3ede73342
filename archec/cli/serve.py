"""``archec serve``: the HTTP server."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import signal
import socket
from pathlib import Path

import click

from archec.access.build import opened_access
from archec.cli.common import config_option, opened, pywb_option
from archec.config.pywb import load_with_pywb
from archec.oai.router import opened_oai
from archec.server.app import AbsentCapability, Capability, make_app
from archec.server.observe import log_accesses
from archec.server.run import listen, make_server, run
from archec.terminal.output import note


@click.command()
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Listen on this port; 0: any free port.")
@pywb_option
@config_option
def serve(host: str | None, port: int | None, pywb_file: Path | None, config_file: Path | None) -> None:
    """Serve the archive over HTTP.

    Serves OAI-PMH at /oai, the collections of the configuration, /healthz and /metrics. The archive is only read; runs
    may be active at the same time, and what they commit is served seconds later. With collections only, no archive is
    needed. Stops gracefully on SIGTERM, SIGINT and SIGHUP. Put a web server with TLS in front of it.

    Example: archec serve --port 8080
    """
    config, ignored = load_with_pywb(config_file, pywb_file)
    if ignored:
        note(f"{pywb_file}: ignored settings: {', '.join(ignored)}")
    server = dataclasses.replace(
        config.server,
        host=config.server.host if host is None else host,
        port=config.server.port if port is None else port,
    )
    logging.basicConfig(level=logging.INFO, format="archec: %(message)s")
    log_accesses(server.access_log, config.base)
    with contextlib.ExitStack() as stack:
        has_archive = not config.collections or config.store_path.exists()
        archive = stack.enter_context(opened(config)) if has_archive else None
        parts: list[Capability] = []
        if config.collections:  # first, because routes are tried in turn, and it receives most requests
            parts.append(stack.enter_context(opened_access(config, archive)))
        if archive is not None:
            parts.append(stack.enter_context(opened_oai(archive)))
        else:
            note(f"there is no archive at {config.store_path}: only the collections are served")
            parts.append(AbsentCapability("oai", "There is no archive here."))
        listener = stack.enter_context(listen(server))
        note(f"serving http://{_address(listener)}/{'oai' if archive is not None else ''}")
        if config.collections:
            note(f"collections: {', '.join(one.name for one in config.collections)}")
        running = make_server(make_app(parts), server)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, running.handle_exit)
        gc.freeze()  # what is there by now stays: no collection need go through it
        # After a graceful stop uvicorn raises the caught signal again.
        with contextlib.suppress(KeyboardInterrupt):
            run(running, listener)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
