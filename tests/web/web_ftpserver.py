"""A tiny FTP server in threads: anonymous, passive, read only, and of bad manners where a path says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class FtpServer:
    """Listens on a loopback address; ``files`` by path, ``heard`` are the commands."""

    def __init__(self, files: dict[str, bytes], address: str = "127.0.0.1") -> None:
        self.files = files
        self.heard: list[str] = []
        self.sent = 0
        """Bytes that it had clients take."""
        self.welcome = "220 ready"
        self.login = "230 in"
        self.passive_address = "127,0,0,1"
        self._sockets: list[socket.socket] = []
        self._address, self._family = address, socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = self._listen()
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def url(self, path: str) -> str:
        return f"ftp://127.0.0.1:{self.port}/{path}"

    def close(self) -> None:
        self._over.set()
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for sock in (self._listener, *self._sockets):
            sock.close()

    def _listen(self) -> socket.socket:
        listener = socket.create_server((self._address, 0), family=self._family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
        return listener

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                client, _ = self._listener.accept()
                self._sockets.append(client)
                thread = threading.Thread(target=self._client, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _client(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client, client.makefile("rb") as lines:
            say = _speaker(client)
            if self.welcome == "silence":
                self._over.wait(30)
            if self.welcome == "chatter":
                while not self._over.is_set():
                    client.sendall(b"220-talk\r\n" * 100)
                    self.sent += 1000
            say(self.welcome)
            listener: socket.socket | None = None
            for line in lines:
                text = line.decode("latin-1").rstrip("\r\n")
                self.heard.append(text)
                command, _, argument = text.partition(" ")
                if command in ("PASV", "EPSV"):
                    listener = self._listen()
                    self._sockets.append(listener)
                    port = listener.getsockname()[1]
                    if command == "EPSV":
                        say(f"229 Entering Extended Passive Mode (|||{port}|)")
                        continue
                    say(f"227 Entering Passive Mode ({self.passive_address},{port >> 8},{port & 255})")
                elif command == "RETR" and listener is not None:
                    self._retrieve(say, listener, argument)
                else:
                    say(self._reply(command, argument))

    def _reply(self, command: str, argument: str) -> str:
        known = argument in self.files
        if command == "USER":
            return "331 password"
        if command == "PASS":
            return self.login
        if command == "SIZE":
            return f"213 {len(self.files[argument])}" if known else "550 no size"
        if command == "MDTM":
            return "213 20090502100000" if known else "550 no date"
        if command == "CWD":
            return "250 in it" if any(path.startswith(f"{argument}/") for path in self.files) else "550 no directory"
        return "200 fine" if command == "TYPE" else "502 what?"

    def _retrieve(self, say: Callable[[str], None], listener: socket.socket, path: str) -> None:
        replies = {"denied": "550 Permission denied", "busy": "450 busy", "odd": "553 name not allowed"}
        replies |= {"locked": "550 gesperrt", "verweigert": "550 Zugriff verweigert", "refuse": "550 Refus\xe9"}
        if path in replies or (path not in self.files and path != "endless"):
            say(replies.get(path, "550 no such file"))
            return
        say("150 here it comes")
        data, _ = listener.accept()
        with data:
            if path == "endless":
                while not self._over.is_set():
                    data.sendall(b"x" * 65536)
                    self.sent += 65536
                return
            if path == "silent":
                self._over.wait(30)
            body = self.files[path]
            data.sendall(body[: len(body) // 2] if path in ("broken", "cut") else body)
        say("426 broken off" if path == "broken" else "226 done")


def _speaker(client: socket.socket) -> Callable[[str], None]:
    return lambda text: client.sendall(text.encode("latin-1") + b"\r\n")
