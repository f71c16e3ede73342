"""Removes the values of tokens, signatures and cookies from what platforms send, before it is stored or shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace

from archec.fileset.fields import clean, parse
from archec.fileset.manifest import safe_path
from archec.fileset.model import FilesetManifestFile, FilesetPlatformItem
from archec.fileset.status import PlatformError

_LONGEST_CACHED = 100
_SECRET = re.compile(
    "(?!(?:next|page|nextpage|resumption|continuation)token).*tokens?|.*secret(?:access)?(?:key)?|.*pass(?:word|wd|phrase)|"
    ".*cookies?|.*signature|(?:data)?(?:sig|jwt|sid)|.*sess(?:ion)?id|.*apikey|.*privatekey|.*accesskey(?:id)?|.*authorization|"
    ".*credentials?|.*privatelink|xamz.+|xgoog.+|googleaccessid|keypairid"
)
"""Names of secrets in any context, in lower case and reduced to letters and digits."""
_SIGNING = re.compile("responsec.+|responseexpires|policy|expires|s[eiprtv]|spr|sk[a-z]{1,3}|key|session|ticket|auth")
"""Names of query parameters that may belong to a signature or login. From the URL of a file they are removed only
beside a signature, because ``key=1`` may also identify the file."""
_SIGNATURE = re.compile(".*signature|sig|xamz.+|xgoog.+|googleaccessid|keypairid")
_NAME = re.compile("(?:[?&;]|%3F|%26|%3B)([A-Za-z0-9_.%-]{2,80}?)(?:=|%3D)", re.I)
_MARKS = re.compile("[?;#@]")
"""A URL without any of these holds no secret."""
_NOT_IN_NAMES = re.compile("[^a-z0-9]+")
_URL = re.compile(r"(?i:https?|ftp)://[^\s'\"<>]*[^\s'\"<>:,;.)]")
_PAIR = re.compile(r"(?<![A-Za-z0-9_.%-])([A-Za-z0-9_.%-]{2,80})=([^&;\"'\s<>\\]+)")
_ENCODED = re.compile(r"((?:%3F|%26|%3B)([A-Za-z0-9_.-]{2,80})%3D)((?:(?!%26|%3B|%23)[^&;\"'\s<>\\])+)", re.I)
_QUOTED = re.compile(
    r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]{2,80})([\"']?\s{0,9}[:=]\s{0,9})"
    r"""("[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')""", re.S
)  # fmt: skip
_EQUALS = re.compile(r"""=|%3D|:\s{0,9}["']|authorization""", re.I)
"""A text without any of these has no secret with a name before it."""
_HEADER = re.compile(r"(authorization\s*[:=]\s*(?:bearer|basic|token)\s+)[^\s\"'<>]+", re.I)
_FIELD = re.compile(r"<(?:meta|input)\b[^<>]*>", re.I)
_NAMED = re.compile(r"""\b(?:name|id|http-equiv|property)\s*=\s*["']?([^\s"'<>]+)""", re.I)
_CONTENT = re.compile(r"""(\b(?:content|value)\s*=\s*)("[^"]*"|'[^']*'|[^\s"'<>]+)""", re.I)


def public_url(url: str) -> str:
    """Removes from a URL its fragment, user information, and the parameters (of path and query) that are tokens or
    belong to a signature."""
    if _MARKS.search(url) is None:
        return url
    url = url.partition("#")[0]
    is_cut = _signs if any(_SIGNATURE.fullmatch(_plain(name)) for name in _NAME.findall(url)) else is_secret
    bare, mark, query = url.partition("?")
    scheme, colon, rest = bare.partition("://")
    authority, slash, path = rest.partition("/")
    if colon:
        path = "/".join(_without_parameters(part, is_cut) if ";" in part else part for part in path.split("/"))
        bare = f"{scheme}{colon}{authority.rpartition('@')[2]}{slash}{path}"
    parts = re.split("(?<=[&;])", query)
    kept = "".join(one for one in parts if not is_cut(one.partition("=")[0].rstrip("&;")))
    kept = _ENCODED.sub(lambda found: found[1] if is_cut(found[2]) else found[0], kept)
    if kept != query:
        kept = kept.rstrip("&;")
    return f"{bare}?{kept}" if kept or (mark and not query) else bare


def public_text(text: str) -> str:
    """Removes secrets from a text, such as a message: those in URLs, and those written as ``name=value``."""
    text = clean(text)
    if "://" in text:
        text = _URL.sub(_public_in_text, text)
    return _without_pairs(text)


def public_value(value: Any) -> Any:
    """Removes secrets from a JSON value: those in its texts, and everything under a name that is one of a secret. A
    value without secrets is returned itself, not copied, because it may be large."""
    if isinstance(value, str):
        return public_text(value)
    public: Any = value
    if isinstance(value, dict):
        public = {
            public_text(name): _emptied(one) if is_secret(name) else public_value(one) for name, one in value.items()
        }
    elif isinstance(value, list):
        public = [public_value(one) for one in value]
    return value if public == value else public


def public_body(body: bytes) -> bytes:
    """Removes secrets from a response body. JSON is serialised again only if it holds one."""
    if body[:100].lstrip()[:1] in (b"{", b"["):
        with suppress(PlatformError, RecursionError):
            return _public_json(body)
    return _without_pairs(body.decode("latin-1")).encode("latin-1")


def _public_json(body: bytes) -> bytes:
    """Removes secrets from JSON. Returns ``body`` itself if there are none. Raises PlatformError, RecursionError."""
    is_public = is_unique = True

    def checked(pairs: list[tuple[str, Any]]) -> int:
        """Checks an object, and puts a number in its place: as a whole, a large answer would need much memory."""
        nonlocal is_public, is_unique
        found = dict(pairs)
        is_unique = is_unique and len(found) == len(pairs)  # of equal names, only the last value is kept
        is_public = is_public and public_value(found) is found
        return 0

    value = parse(body, objects=checked).raw
    if is_unique and is_public and public_value(value) is value:
        return body
    value = parse(body).raw
    public = public_value(value)
    return body if public is value and is_unique else json.dumps(public).encode()


def public_item(item: FilesetPlatformItem) -> FilesetPlatformItem:
    """Removes secrets from the description of a data set. The URLs of its files and its bundle are kept as they are,
    since they are still to be requested."""
    return replace(
        item,
        title=public_text(item.title),
        archiveorg_item_meta=public_value(item.archiveorg_item_meta),
        web_base_url=public_url(item.web_base_url) if item.web_base_url else item.web_base_url,
        cite_as=public_url(item.cite_as),
        manifest=None if item.manifest is None else [_public_file(file) for file in item.manifest],
    )


def public_files(files: Sequence[FilesetManifestFile]) -> list[FilesetManifestFile]:
    """Replaces the URLs of files by those under which they are stored, without secrets. Where several files would get
    the same URL, their paths are added to it."""
    urls = [public_url(file.platform_url) if file.platform_url else None for file in files]
    pairs = list(zip(files, urls, strict=True))
    asked: dict[str | None, set[str]] = {url: set() for file, url in pairs if url != file.platform_url}
    for file, url in pairs:
        if url in asked:
            asked[url].add((file.platform_url or "").partition("#")[0])
    return [
        file if url not in asked
        else replace(file, platform_url=url if url is None or len(asked[url]) == 1 else _with_path(url, file))
        for file, url in pairs
    ]  # fmt: skip


def is_secret(name: str) -> bool:
    """Whether a field of this name holds a token, a signature or a cookie."""
    return _is_secret(name) if len(name) <= _LONGEST_CACHED else _is_secret.__wrapped__(name)


@lru_cache(2000)
def _is_secret(name: str) -> bool:
    return _SECRET.fullmatch(_plain(name)) is not None


def _public_in_text(found: re.Match[str]) -> str:
    url, mark, fragment = found[0].partition("#")
    return public_url(url) + mark + fragment


def _public_file(file: FilesetManifestFile) -> FilesetManifestFile:
    extra = public_value(file.extra)
    return file if extra is file.extra else replace(file, extra=extra)


def _with_path(url: str, file: FilesetManifestFile) -> str:
    return f"{url}{'&' if '?' in url else '?'}path={quote(safe_path(file))}"


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("", unquote(name).lower())


@lru_cache(2000)
def _signs(name: str) -> bool:
    plain = _plain(name)
    return _SECRET.fullmatch(plain) is not None or _SIGNING.fullmatch(plain) is not None


def _without_parameters(part: str, is_cut: Callable[[str], bool]) -> str:
    """Removes the parameters of a path segment that are secrets (``;jsessionid=...``)."""
    name, *parameters = part.split(";")
    return ";".join([name, *(one for one in parameters if not is_cut(one.partition("=")[0]))])


def _without_pairs(text: str) -> str:
    if _EQUALS.search(text) is None:
        return text
    text = _QUOTED.sub(_public_quoted, _FIELD.sub(_public_field, text))
    if "authorization" in text.lower():
        text = _HEADER.sub(r"\1", text)
    return _ENCODED.sub(_without_encoded, _PAIR.sub(_without_value, text))


def _without_value(found: re.Match[str]) -> str:
    is_in_query = found.string[max(found.start() - 1, 0)] in "?&;"
    cut = _signs(found[1]) if is_in_query else is_secret(found[1])
    return f"{found[1]}=" if cut else found[0]


def _without_encoded(found: re.Match[str]) -> str:
    return found[1] if _signs(found[2]) else found[0]


def _public_quoted(found: re.Match[str]) -> str:
    if is_secret(found[1]):
        return found[1] + found[2] + found[3][0] * 2
    return found[1] + found[2] + found[3][0] + _without_pairs(found[3][1:-1]) + found[3][0]


def _public_field(found: re.Match[str]) -> str:
    if any(is_secret(name) for name in _NAMED.findall(found[0])):
        return _CONTENT.sub(r'\1""', found[0])
    return found[0]


def _emptied(value: Any) -> Any:
    """The replacement for a secret: a value of the same structure, in which all texts and numbers are empty texts."""
    if isinstance(value, dict):
        return {name: _emptied(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_emptied(one) for one in value]
    return value if value is None or isinstance(value, bool) else ""
