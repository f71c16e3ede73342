"""The FTP transport: the standard library's ftplib in threads, behind the same interface as HTTP.

Each session retrieves one file: anonymous, passive, binary. The guard checks the address, and the connection is made to
that numeric address. The data connection goes to the same address whatever the server's PASV reply says (ftplib's
default), so a server cannot redirect it. Replies are mapped to the nearest HTTP status: 550 to RETR is 404 (403 if it
mentions permission, or if something is there: its size or date is stated, or it is a directory), 530 and the like 401,
4xx 503; a refused session says nothing about the file. The text of the reply is the message. Size and date (SIZE and
MDTM) make an ETag if the server states both; if it is unchanged, the status is 304.
"""

from __future__ import annotations

import asyncio
import ftplib
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import partial
from urllib.parse import unquote_to_bytes

from archec.web.guard import MAX_ADDRESSES, Guard, within
from archec.web.h1 import AHEAD
from archec.web.messages import Request, Response, clean
from archec.web.outcome import OURS, BadUrl, ConnectError, Internal, ProtocolError, TimedOut, Truncated, internal

_MAX_REPLIES = 256_000
"""Maximum size in bytes of all replies of a session."""
_MAX_REASON = 300
_PIECE = 1 << 18
_DENIED = re.compile(r"permis|denied|not allowed|acc[e\xe8]s|verweigert|refus|negad|negato", re.I)
"""Also in the words of servers that speak German, French, Spanish, Portuguese or Italian."""


class FtpTransport:
    """GET of ftp URLs.

    ``timeout`` is that for connecting in seconds, ``idle`` that while a server is silent. ``contact`` is sent as the
    anonymous password.
    ``received`` is called with the number of bytes received, including replies; socket buffers are small then.
    """

    def __init__(
        self,
        guard: Guard,
        threads: int,
        timeout: float,
        idle: float,
        contact: str,
        received: Callable[[int], None] | None = None,
    ) -> None:
        self._guard = guard
        self._received = received
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ftp")
        self._timeout, self._idle = timeout, idle
        self._contact = contact

    async def send(self, request: Request) -> Response:
        """Logs in and requests the file. Its size and date become headers; the body is streamed."""
        _, host, port, _ = request.origin
        self._guard.check_request(request)
        loop = asyncio.get_running_loop()
        path = _path(request.target)
        addresses = await within(self._timeout, self._guard.resolve(host, port), f"the name {host}")
        held = next((value for name, value in request.headers if name.lower() == b"if-none-match"), b"")
        addresses = addresses[:MAX_ADDRESSES]
        for number, address in enumerate(addresses, 1):
            share = self._timeout / len(addresses)
            session = _Session(address, port, share, self._idle, counted=self._received is not None)
            try:
                status, headers, message = await loop.run_in_executor(
                    self._threads, session.open, path, self._contact, held
                )
                break
            except (ConnectError, TimedOut) as error:
                self.end(session)
                if number == len(addresses) or isinstance(error, Internal):
                    raise
            except BaseException:
                self.end(session)
                raise
            finally:
                self.count(session)
        if request.sent is not None:
            request.sent()
        return Response(
            request, status, headers, partial(self._read, session), partial(self.end, session), message=message
        )

    async def _read(self, session: _Session) -> bytes:
        data = await asyncio.get_running_loop().run_in_executor(self._threads, session.read)
        self.count(session)
        return data

    def count(self, session: _Session) -> None:
        """Reports the bytes that a session received since the last report."""
        if self._received is not None:
            self._received(session.uncounted())

    def end(self, session: _Session) -> None:
        """Ends a session without blocking, even if a thread is waiting for its server."""
        session.interrupt()
        self._threads.submit(session.close)

    async def aclose(self) -> None:
        """Abandons the threads. Open sockets close when they time out."""
        self._threads.shutdown(wait=False, cancel_futures=False)


class _Ftp(ftplib.FTP):
    """FTP with a limit on the size of replies."""

    replies = 0
    asked = ""
    """The last command."""

    def putcmd(self, line: str) -> None:
        self.asked = line[:4]
        super().putcmd(line)

    def getline(self) -> str:
        line = super().getline()
        self.replies += len(line)
        if self.replies > _MAX_REPLIES:
            raise ftplib.error_proto(f"more than {_MAX_REPLIES} bytes of replies")
        return line


class _Session:
    """One control connection and at most one data connection. Methods run in a thread, one at a time.

    ``counted``: received bytes are counted, so socket buffers are kept small.
    """

    def __init__(self, address: str, port: int, timeout: float, idle: float, *, counted: bool) -> None:
        self._counted = counted
        self._received = self._reported = 0
        self._address = address
        self._port = port
        self._timeout = timeout
        self._idle = idle
        self._ftp = _Ftp(encoding="latin-1")
        self._data: socket.socket | None = None
        self._lock = threading.Lock()
        self._ended = False

    def open(self, path: str, contact: str, held: bytes) -> tuple[int, list[tuple[bytes, bytes]], str]:
        """Returns status, headers and message. With status 200 the data connection is open.

        If the server states size or date, or enters it as a directory, something is there, whatever reason it gives for
        not sending it.
        """
        headers: list[tuple[bytes, bytes]] = []
        is_there = False
        with self._lock:
            try:
                self._ftp.connect(self._address, self._port, self._timeout)
                self._ftp.timeout = self._idle
                if self._ftp.sock is not None:
                    self._prepare(self._ftp.sock)
                self._ftp.login("anonymous", contact or "archec@")
                self._ftp.voidcmd("TYPE I")
                stamp, size = self._modified(path), self._size(path)
                is_there = stamp is not None or size >= 0
                if stamp is not None:
                    headers.append((b"Last-Modified", format_datetime(stamp, usegmt=True).encode("ascii")))
                if stamp is not None and size >= 0:
                    tag = f'"{size}-{stamp:%Y%m%d%H%M%S}"'.encode("ascii")
                    headers.append((b"ETag", tag))
                    if tag == held:
                        return 304, headers, ""
                self._data = self._ftp.transfercmd(f"RETR {path}")
                self._prepare(self._data)
                if size >= 0:
                    headers.append((b"Content-Length", b"%d" % size))
            except ftplib.Error as error:
                message = clean(f"ftp: {error}".encode("latin-1", "replace")[:_MAX_REASON])
                status = _status_of(error, self._ftp.asked)
                return 403 if status == 404 and (is_there or self._is_directory(path)) else status, headers, message
            except TimeoutError as error:
                raise TimedOut("the ftp server does not answer") from error
            except (OSError, EOFError) as error:
                if isinstance(error, OSError) and error.errno in OURS:
                    raise internal(error) from error
                reason = str(error) or "closed the connection"
                raise ConnectError(f"the ftp server refused the request: {reason}") from error
            except (ValueError, UnicodeError) as error:
                raise ProtocolError(f"the ftp server does not speak ftp: {error}") from error
        return 200, headers, ""

    def read(self) -> bytes:
        """Returns the next piece of the file, ``b""`` at its end."""
        with self._lock:
            if self._data is None:
                return b""
            try:
                data = self._data.recv(_PIECE)
                self._received += len(data)
                if data or self._ended:
                    return data
                self._ended = True
                self._data.close()
                self._ftp.voidresp()  # only this reply says whether the file is complete
            except TimeoutError as error:
                raise TimedOut("no data from the ftp server") from error
            except (ftplib.Error, OSError, EOFError, ValueError) as error:
                raise Truncated(f"the ftp transfer was interrupted: {error}") from error
            return b""

    def uncounted(self) -> int:
        """Number of bytes received since the last call. Call it only while no thread uses the session."""
        received = self._received + self._ftp.replies
        new, self._reported = received - self._reported, received
        return new

    def interrupt(self) -> None:
        """Wakes a thread that is waiting for the server."""
        for sock in (self._ftp.sock, self._data):
            if sock is not None:
                try:  # not close(): another thread may be reading, and the descriptor could be reused
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def close(self) -> None:
        """Closes both connections once no other thread uses them."""
        with self._lock:
            if self._data is not None:
                self._data.close()
            self._ftp.close()

    def _prepare(self, sock: socket.socket) -> None:
        sock.settimeout(self._idle)
        if self._counted:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, AHEAD // 2)  # Linux doubles it

    def _modified(self, path: str) -> datetime | None:
        try:
            text = self._ftp.sendcmd(f"MDTM {path}").split()[-1].partition(".")[0]
            return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
        except (ftplib.Error, ValueError, IndexError):
            return None

    def _is_directory(self, path: str) -> bool:
        try:
            self._ftp.cwd(path)
        except (ftplib.Error, OSError, EOFError):
            return False
        return True

    def _size(self, path: str) -> int:
        try:
            size = self._ftp.size(path)
        except (ftplib.Error, ValueError):
            return -1
        return -1 if size is None else size


def _path(target: bytes) -> str:
    """The path to request, relative to the login directory, with one character per byte.

    Raises:
        BadUrl: it is a directory, or has control characters, which no FTP command can contain.
    """
    raw = unquote_to_bytes(target.partition(b"?")[0].removeprefix(b"/").partition(b";type=")[0])
    if not raw or raw.endswith(b"/"):
        raise BadUrl("an ftp directory, not a file")
    if any(byte < 32 or byte == 127 for byte in raw):
        raise BadUrl("an ftp path with control characters")
    return raw.decode("latin-1")


def _status_of(error: ftplib.Error, asked: str) -> int:
    code = str(error)[:3]
    if code in ("530", "331", "332", "532"):
        return 401
    if asked == "RETR" and code == "550":
        return 403 if _DENIED.search(str(error)) else 404
    if asked == "RETR" and code in ("551", "552", "553"):
        return 403
    if isinstance(error, ftplib.error_proto) or code.startswith("4"):
        return 503
    return 501
