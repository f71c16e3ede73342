"""What servers do, and what five runs must make of it: a table that is checked row by row.

A row is a path below which ``{n}`` is a number, and the outcomes of the five runs; one outcome stands for all five,
two stand for the first and all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from web_hostile import OK, Asked, Hostile, answer, behaviour

RUNS = 5


class Row(NamedTuple):
    """A behaviour and the outcomes of the visits to a URL of it, run by run."""

    path: str
    outcomes: tuple[str, ...]


def _row(path: str, *outcomes: str) -> Row:
    return Row(path, (*outcomes, *[outcomes[-1]] * (RUNS - len(outcomes))))


HELD = ("new", "same")

STATUSES = {
    **dict.fromkeys((200, 201, 202, 203, 204, 207, 208, 226, 299), HELD),
    206: ("truncated",),
    **dict.fromkeys((300, 301, 302, 303, 304, 305, 306, 307, 308, 309, 350, 399), ("server-error",)),
    **dict.fromkeys((404, 410), ("gone",)),
    407: ("unreachable",),
    **dict.fromkeys((408, 421, 425), ("server-error",)),
    **dict.fromkeys(
        (
            400, 401, 402, 403, 405, 406, 409, 411, 412, 413, 414, 415, 416, 417, 418, 419, 420, 422, 423, 424, 426,
            428, 430, 431, 440, 444, 449, 450, 451, 460, 463, 494, 495, 496, 497, 498, 499,
        ),
        ("forbidden",),
    ),
    **dict.fromkeys(
        (
            500, 501, 502, 504, 505, 506, 507, 508, 509, 510, 511, 520, 521, 522, 523, 524, 525, 526, 527, 530, 598,
            599, 600, 700, 999,
        ),
        ("server-error",),
    ),
}  # fmt: skip
"""Of an answer with a body or, where it may have none, without. (429 and 503 are about the host.)"""

LOCATIONS: dict[bytes, str] = {
    b"/ok/a b {n}": "", b" /ok/ends {n} ": "", b"\t/ok/tab{n}": "", b"/ok/in\tside{n}": "", b"\\ok\\back{n}": "",
    b"/ok\\mixed/{n}": "", b"../../ok/up{n}": "", b"../../../../ok/more{n}": "", b"/x/../ok/dots{n}": "",
    b"/x/%2e%2e/ok/escaped{n}": "", b"/x/.%2E/ok/half{n}": "", b"/./ok/./one{n}": "", b"/ok/fragment{n}#part": "",
    b"/ok/query{n}?a b&c": "", b"/ok/caf\xc3\xa9{n}": "", b"/ok/caf\xe9{n}": "", b"/ok/%C3%A9{n}": "",
    b"/ok/pipe|{n}": "", b'/ok/"quoted"{n}': "", b"/ok/<angle>{n}": "", b"/ok/back`tick{n}": "", b"/ok/{n}/{curly}": "",
    b"/ok/hat^{n}": "", b"/ok/percent%zz{n}": "", b"/ok/percent%{n}": "", b"/ok/semi;colon={n}": "",
    b"//{host}/ok/scheme{n}": "", b"///{host}/ok/three{n}": "", b"\\\\{host}\\ok\\unc{n}": "",
    b"/\\{host}/ok/both{n}": "", b"http:/ok/single{n}": "", b"http:\\\\{host}/ok/slanted{n}": "",
    b"HTTP://{host}/ok/loud{n}": "", b"http://user:secret@{host}/ok/user{n}": "",
    b"http://a@b@{host}/ok/ats{n}": "", b"http:////{host}/ok/four{n}": "", b"/ok/plus+{n}": "", b"/ok/tilde~{n}": "",
    b"/ok/{n}?": "", b"/ok//double{n}": "", b"/ok/nbsp\xa0{n}": "",
    b"/status/404?loc={n}": "gone", b"/status/403?loc={n}": "forbidden", b"/status/500?loc={n}": "server-error",
    b"/short/loc{n}": "truncated", b"http://169.254.169.254/{n}": "blocked-address",
    b"http://0xa9fea9fe/{n}": "blocked-address", b"http://0251.0376.0251.0376/{n}": "blocked-address",
    b"http://[fe80::1]/{n}": "blocked-address", b"http://{host}:0/{n}": "bad-url",
    b"http://": "bad-url", b"http://[bad/{n}": "bad-url", b"http://a b/{n}": "bad-url",
    b"http://{host}:99999/{n}": "bad-url",
    b"file:///etc/passwd": "bad-url", b"javascript:alert({n})": "bad-url", b"mailto:a@b": "bad-url",
    b"data:,x{n}": "bad-url", b"http://a%00b/{n}": "bad-url", b"http://1.2.3.4.5/{n}": "bad-url",
}  # fmt: skip
"""What a Location says, and where that ends; empty: at a file."""

RAW: dict[bytes, tuple[str, ...]] = {
    # heads
    b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.1 200 " + b"r" * 3000 + b"\r\nContent-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok": HELD,
    OK + b"content-LENGTH:2\r\n\r\nok": HELD,
    OK + b"Content-Length:   2  \r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nX-Empty:\r\n\r\nok": HELD,
    OK + b"Content-Length: 002\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nX: a\x01b\x7f\xff\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nContent-Type: text/plain; charset=\"\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nContent-Encoding: nonsense\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nETag: \"\x01\"\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nLast-Modified: never\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nLocation: /elsewhere\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nRetry-After: 86400\r\n\r\nok": HELD,
    OK + b"Content-Length: 0\r\n\r\n": HELD,
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3 + OK + b"Content-Length: 2\r\n\r\nok": HELD,
    b"\r\n" + OK + b"Content-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end": HELD,
    OK + b"Connection: close\r\n\r\nuntil the end": HELD,
    OK + b"Transfer-Encoding: identity\r\n\r\nuntil the end": HELD,
    OK + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok": HELD,
    OK + b"Content-Length: 2\r\nConnection: keep-alive\r\n\r\nok": HELD,
    # heads that are none
    b"": ("unreachable",),
    b"\r\n": ("unreachable",),
    b"HTTP/1.1": ("unreachable",),
    b"HTTP/1.1 200 OK\r\nContent-": ("unreachable",),
    b"HTTP/1.1 100 Continue\r\n\r\n": ("unreachable",),
    b"<html>": ("server-error",),
    b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nok": HELD,
    b"HTTP/1.1 20 OK\r\n\r\n": ("server-error",),
    b"HTTP/1.1 000 OK\r\n\r\n": ("server-error",),
    b"HTTP/1.1 2000 OK\r\n\r\n": ("server-error",),
    b"HTTP/1.1 99999999999 " + b"x" * 1000 + b"\r\n\r\n": ("server-error",),
    b"HTTP/1.1 abc OK\r\n\r\n": ("server-error",),
    b"HTTP/x.y 200 OK\r\n\r\n": ("server-error",),
    b"HTTTP/1.1 200 OK\r\n\r\n": ("server-error",),
    b"ICY 200 OK\r\n\r\nmusic": ("server-error",),
    b"SSH-2.0-OpenSSH_9.6\r\n": ("server-error",),
    b"220 ftp.example.org ready\r\n": ("server-error",),
    b"\x16\x03\x01\x02\x00\x01": ("server-error",),
    b"\x00" * 100: ("server-error",),
    bytes(range(256)) * 10: ("server-error",),
    OK + b": no name\r\n\r\n": ("server-error",),
    OK + b"X Y: 1\r\n\r\n": ("server-error",),
    OK + b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n": ("server-error",),
    OK + b"X: " + b"x" * 200_000 + b"\r\n\r\n": ("server-error",),
    # lengths
    OK + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\nhello": ("server-error",),
    OK + b"Content-Length: -5\r\n\r\nhello": ("server-error",),
    OK + b"Content-Length: 0x5\r\n\r\nhello": ("server-error",),
    OK + b"Content-Length: 5.0\r\n\r\nhello": ("server-error",),
    OK + b"Content-Length: 99999999999999999999999\r\n\r\nhello": ("server-error",),
    OK + b"Content-Length: 6\r\n\r\nhello": ("truncated",),
    OK + b"Content-Length: 4\r\n\r\nhello": ("truncated",),
    OK + b"Content-Length: 99999999999\r\n\r\nhello": ("too-large",),
    # chunks
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n000\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n0\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n": HELD,
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n": ("truncated",),
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel": ("truncated",),
    OK + b"Transfer-Encoding: chunked\r\n\r\n": ("truncated",),
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n": ("truncated",),
    OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n": ("server-error",),
    OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n": ("server-error",),
    OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello": ("server-error",),
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n": ("server-error",),
    OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n": ("server-error",),
    OK + b"Transfer-Encoding: gzip\r\n\r\nhello": ("server-error",),
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nfoo": ("server-error",),
}  # fmt: skip
"""Everything that a server sends before it closes the connection."""

BY_RUN = {
    "same": ("200", "200", "200", "200", "200", *HELD, "same", "same", "same"),
    "grows": ("200a", "200b", "200c", "200d", "200e", "new", "changed", "changed", "changed", "changed"),
    "flips": ("200a", "200b", "200a", "200b", "200a", "new", "changed", "changed", "changed", "changed"),
    "appears": ("404", "404", "404", "200", "200", "gone", "gone", "gone", "new", "same"),
    "goes": ("200", "404", "404", "404", "404", "new", "gone", "gone", "gone", "gone"),
    "is-away": ("200", "404", "200", "404", "200", "new", "gone", "same", "gone", "same"),
    "comes-back": ("200", "404", "404", "404", "200", "new", "gone", "gone", "gone", "new"),
    "goes-for-good": ("200", "410", "410", "410", "410", "new", "gone", "gone", "gone", "gone"),
    "fails": ("200", "500", "500", "500", "200", "new", "server-error", "server-error", "server-error", "same"),
    "hangs-up": ("200", "close", "200", "close", "200", "new", "unreachable", "same", "unreachable", "same"),
    "breaks-off": ("200", "part", "200b", "part", "200b", "new", "truncated", "changed", "truncated", "same"),
    "locks": ("200", "403", "403", "403", "200", "new", "forbidden", "forbidden", "forbidden", "same"),
    "opens": ("401", "401", "200", "200", "200", "forbidden", "forbidden", "new", "same", "same"),
    "moves": ("200", "302", "302", "302", "302", "new", *["changed", "same", "same", "same"]),
    "empties": ("200", "empty", "empty", "200", "200", "new", "changed", "same", "changed", "same"),
    "knows": ("etag", "etag", "etag", "etag", "etag", "new", *["not-modified"] * 4),
    "knows-no-more": ("etag", "etag", "200", "200", "200", "new", "not-modified", "changed", "same", "same"),
    "denies": ("200", "304", "304", "304", "304", "new", *["server-error"] * 4),
    "parts": ("200", "206", "200", "206", "200", "new", "truncated", "same", "truncated", "same"),
}
"""What is answered in each of the runs, then the outcomes."""

OTHERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("/never/{n}", "/slow-head/{n}", "/drip/{n}", "/silent-body/{n}"), ("timeout",)),
    **dict.fromkeys(
        ("/endless/{n}", "/endless-until-close/{n}", "/huge/{n}", "/sized/{n}?size=1000001"), ("too-large",)
    ),
    **dict.fromkeys(
        ("/endless-header/{n}", "/endless-1xx/{n}", "/endless-trailers/{n}", "/long-location/{n}", "/evil-reason/{n}"),
        ("server-error",),
    ),
    "/sized/{n}?size=1000000": HELD,
    "/evil-head/{n}": HELD,
    "/reset/{n}": ("truncated",),
    "/reset-at-once/{n}": ("unreachable",),
    "/gone-on/{n}": ("too-many-redirects",),
}
"""What takes longer to do than to say."""


def rows() -> Iterator[Row]:
    """The whole table."""
    for status, outcomes in STATUSES.items():
        yield _row(f"/status/{status}?n={{n}}", *outcomes)
    for number, outcome in enumerate(LOCATIONS.values()):
        yield _row(f"/located/{number}/{{n}}", *((outcome,) if outcome else HELD))
    for number, outcomes in enumerate(RAW.values()):
        yield _row(f"/raw/{number}/{{n}}", *outcomes)
    for name, told in BY_RUN.items():
        yield _row(f"/by-run/{name}/{{n}}", *told[RUNS:])
    for path, outcomes in OTHERS.items():
        yield _row(path, *outcomes)


@behaviour
async def located(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Redirects by one of LOCATIONS."""
    _, _, number, n = asked.path.split("/")
    host = f"{asked.host}:{server.port}".encode()
    location = list(LOCATIONS)[int(number)].replace(b"{n}", f"{number}-{n}".encode()).replace(b"{host}", host)
    writer.write(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n")
    return True


@behaviour
async def raw(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """One of RAW, then the end."""
    writer.write(list(RAW)[int(asked.path.split("/")[2])])
    return False


@behaviour
async def by_run(server: Hostile, writer: asyncio.StreamWriter, asked: Asked) -> bool:
    """Another answer in each run."""
    _, _, name, n = asked.path.split("/")
    told = BY_RUN[name][server.run]
    body = f"{name} {n} {told}\n".encode() * 20
    if told == "close":
        return False
    if told == "part":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + body[:20])
        return False
    if told == "etag" and asked.headers.get("if-none-match") == '"1"':
        writer.write(b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n')
    elif told == "304":
        writer.write(b"HTTP/1.1 304 Not Modified\r\n\r\n")
    elif told == "302":
        answer(writer, 302, b"", f"Location: /ok/moved/{n}\r\n")
    elif told == "empty":
        answer(writer, 200, b"")
    else:
        answer(writer, int(told[:3]) if told != "etag" else 200, body, 'ETag: "1"\r\n' if told == "etag" else "")
    return True
