"""ftp URLs through the standard library's ftplib in threads, behind the same interface as HTTP.

Only anonymous, passive, binary retrieval of one file a session. The address is checked by the guard and
connected to as a number; the data connection goes to that same address whatever the server's PASV answer
says (no bounce). Replies become the HTTP status that comes nearest: 550 is 404 (403 where it speaks of
permission), 530 and its like 401, 4xx 503, and the reply's text is the message. An If-Modified-Since that equals the
date of MDTM gets 304.
"""

from __future__ import annotations

import asyncio
import ftplib
import re
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from email.utils import format_datetime
from urllib.parse import unquote_to_bytes

import httpx

from archec.web.faults import Blocked, Truncated
from archec.web.guard import Guard
from archec.web.headers import clean
from archec.web.resolve import Resolver

__all__ = ["FtpTransport"]

_MOST_CHATTER = 256_000
"""Bytes of replies in one session at most."""
_LONGEST_REASON = 300
_PIECE = 1 << 18
_DENIED = re.compile(r"permission|denied|not allowed|access", re.I)


class FtpTransport(httpx.AsyncBaseTransport):
    """GET of ftp URLs. Heeds the same extensions of a request as ``DirectTransport``.

    ``idle`` is the longest silence of a server in seconds; ``contact`` is given as the anonymous password.
    """

    def __init__(self, guard: Guard, resolver: Resolver, threads: int, idle: float, contact: str) -> None:
        self._guard = guard
        self._resolver = resolver
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ftp")
        self._idle = idle
        self._contact = contact

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Logs in, asks for the file and gives its size and date as headers; the body streams."""
        url = request.url
        if url.scheme != "ftp":
            raise httpx.UnsupportedProtocol(f"{url.scheme} is not spoken here")
        loop = asyncio.get_running_loop()
        host, port = url.raw_host.decode("ascii"), url.port or ftplib.FTP_PORT
        path = _path(request.extensions.get("target") or url.raw_path)
        timeout: float = request.extensions.get("timeout", {}).get("connect") or 20.0
        try:
            addresses = await asyncio.wait_for(self._resolver.resolve(host, port), timeout)
        except asyncio.TimeoutError as error:
            raise httpx.ConnectTimeout(f"the name {host} took too long") from error
        public = [address for address in addresses if self._guard.allows(address)]
        if not public:
            raise Blocked(f"{host} ({addresses[0]}) is not a public address; fetch.allow_networks opens networks")
        session = _Session(public[0], port, timeout, self._idle)
        since = request.headers.get("if-modified-since", "")
        opening = loop.run_in_executor(self._threads, session.open, path, self._contact, since)
        sent = request.extensions.get("sent")
        try:
            status, headers, message = await opening
        except BaseException:
            self._leave(session)
            raise
        if sent is not None:
            sent()
        return httpx.Response(
            status,
            headers=headers,
            stream=_Body(self, session, self._threads),
            extensions={"http_version": b"FTP", "address": public[0], "message": message},
        )

    def _leave(self, session: _Session) -> None:
        session.interrupt()
        self._threads.submit(session.close)

    async def aclose(self) -> None:
        """Gives the threads up; sockets that are still open end by their timeouts."""
        self._threads.shutdown(wait=False, cancel_futures=False)


class _Body(httpx.AsyncByteStream):
    def __init__(self, transport: FtpTransport, session: _Session, threads: ThreadPoolExecutor) -> None:
        self._transport = transport
        self._session = session
        self._threads = threads

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        while data := await loop.run_in_executor(self._threads, self._session.read):
            yield data

    async def aclose(self) -> None:
        self._transport._leave(self._session)


class _Ftp(ftplib.FTP):
    """FTP whose server may not talk for ever."""

    heard = 0

    def getline(self) -> str:
        line = super().getline()
        self.heard += len(line)
        if self.heard > _MOST_CHATTER:
            raise ftplib.error_proto(f"more than {_MOST_CHATTER} bytes of replies")
        return line


class _Session:
    """One control connection and at most one data connection; methods run in a thread, one at a time."""

    def __init__(self, address: str, port: int, timeout: float, idle: float) -> None:
        self._address = address
        self._port = port
        self._timeout = timeout
        self._idle = idle
        self._ftp = _Ftp(encoding="latin-1")
        self._data: socket.socket | None = None
        self._lock = threading.Lock()
        self._ended = False

    def open(self, path: str, contact: str, since: str) -> tuple[int, list[tuple[str, str]], str]:
        """Status, headers and message; where the status is 200 the data connection stands."""
        headers: list[tuple[str, str]] = []
        with self._lock:
            try:
                self._ftp.connect(self._address, self._port, self._timeout)
                self._ftp.timeout = self._idle
                if self._ftp.sock is not None:
                    self._ftp.sock.settimeout(self._idle)
                self._ftp.login("anonymous", contact or "archec@")
                self._ftp.voidcmd("TYPE I")
                modified = self._modified(path)
                if modified:
                    headers.append(("Last-Modified", modified))
                    if modified == since:
                        return 304, headers, ""
                size = self._size(path)
                self._data = self._ftp.transfercmd(f"RETR {path}")
                self._data.settimeout(self._idle)
                if size >= 0:
                    headers.append(("Content-Length", str(size)))
            except ftplib.Error as error:
                return _status_of(error), headers, clean(f"ftp: {error}".encode("latin-1", "replace")[:_LONGEST_REASON])
            except TimeoutError as error:
                raise httpx.ConnectTimeout("the ftp server does not answer") from error
            except (OSError, EOFError) as error:
                reason = str(error) or "closed the connection"
                raise httpx.ConnectError(f"the ftp server cannot be asked: {reason}") from error
            except (ValueError, UnicodeError) as error:
                raise httpx.RemoteProtocolError(f"the ftp server does not speak ftp: {error}") from error
        return 200, headers, ""

    def read(self) -> bytes:
        """The next piece of the file, ``b""`` at its end."""
        with self._lock:
            if self._data is None:
                return b""
            try:
                data = self._data.recv(_PIECE)
                if data or self._ended:
                    return data
                self._ended = True
                self._data.close()
                self._ftp.voidresp()
            except TimeoutError as error:
                raise httpx.ReadTimeout("the ftp server fell silent") from error
            except (ftplib.Error, OSError, EOFError, ValueError) as error:
                raise Truncated(f"the ftp transfer broke off: {error}") from error
            return b""

    def interrupt(self) -> None:
        """Wakes a thread that waits for the server."""
        for sock in (self._ftp.sock, self._data):
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def close(self) -> None:
        """Closes both connections once no other thread uses them."""
        with self._lock:
            if self._data is not None:
                self._data.close()
            self._ftp.close()

    def _modified(self, path: str) -> str:
        try:
            text = self._ftp.sendcmd(f"MDTM {path}").split()[-1].partition(".")[0]
            return format_datetime(datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc), usegmt=True)
        except (ftplib.Error, ValueError, IndexError):
            return ""

    def _size(self, path: str) -> int:
        try:
            size = self._ftp.size(path)
        except (ftplib.Error, ValueError):
            return -1
        return -1 if size is None else size


def _path(target: bytes) -> str:
    """The path to ask for, relative to where the login lands; one byte a character.

    Raises:
        httpx.UnsupportedProtocol: it is a directory, or has characters that no ftp command can carry.
    """
    raw = unquote_to_bytes(target.partition(b"?")[0].removeprefix(b"/").partition(b";type=")[0])
    if not raw or raw.endswith(b"/"):
        raise httpx.UnsupportedProtocol("an ftp directory, not a file")
    if any(byte < 32 or byte == 127 for byte in raw):
        raise httpx.UnsupportedProtocol("an ftp path with control characters")
    return raw.decode("latin-1")


def _status_of(error: ftplib.Error) -> int:
    code = str(error)[:3]
    if code == "550":
        return 403 if _DENIED.search(str(error)) else 404
    if code in ("530", "331", "332", "532"):
        return 401
    if code in ("551", "552", "553"):
        return 403
    if isinstance(error, ftplib.error_proto) or code.startswith("4"):
        return 503
    return 501
