"""The collections of the access layer: parses the setting ``collections`` into sources of rows and of records.

The form is that of the Distributed Archive Config of pywb's wiki; the names that pywb itself uses are accepted as
well. Everything is checked before the server starts; the message about an invalid setting names its collection and key.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from archec.errors import ArchecError
from archec.units import parse_duration

SourceType = Literal["file", "zipnum", "warc", "wacz", "archec", "redis", "cdx", "memento", "live"]
ResourceKind = Literal["live", "path", "prefix", "index", "redis", "wacz"]

DEFAULT_TIMEOUT = 5.0
RESERVED = ("oai", "cdx", "web", "wayback", "healthz", "metrics")
"""Reserved names: paths of the server."""

_NAME = re.compile(r"[^\s/?#%\x00-\x1f\x7f]{1,100}")
KEYS: Mapping[str, str] = {
    "index": "index",
    "index_paths": "index",
    "index_group": "index_group",
    "sequence": "sequence",
    "resource": "resource",
    "archive_paths": "resource",
    "index_timeout": "index_timeout",
    "timeout": "index_timeout",
}
"""The keys of a collection, with their aliases, and the settings they stand for."""
SOURCE_KEYS: Mapping[str, tuple[str, ...]] = {
    "file": ("path",),
    "zipnum": ("path",),
    "warc": ("path",),
    "wacz": ("path",),
    "archec": ("path",),
    "redis": ("redis_url",),
    "cdx": ("api_url", "replay_url"),
    "memento": ("timegate_url", "timemap_url", "replay_url"),
    "wb-memento": ("timegate_url", "timemap_url", "replay_url"),
    "live": (),
}
"""The keys of an index by its type."""
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "archec": (),
    "cdx": ("api_url",),
    "memento": ("replay_url",),
    "wb-memento": ("replay_url",),
}
"""The keys that must be given, where not all must be."""
_NAMED = ("url", "timestamp", "closest", "src_coll")
"""The usual names in braces in URLs."""
_REFUSED = {
    "xmlquery": "xmlquery is not supported; a CDX server is 'cdx+URL'",
    "live+": "the live web takes no URL; write '$live'",
}


class Misfit(ValueError):
    """An invalid value; the message names the place within the setting."""


class SourceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """An index: a source of rows. ``path`` and URLs are as written; the path of ``archec`` is empty for this
    archive."""

    name: str
    type: SourceType
    path: str = ""
    redis_url: str = ""
    api_url: str = ""
    replay_url: str = ""
    timegate_url: str = ""
    timemap_url: str = ""


class ResourceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The source of records: the live web, a prefix of paths or URLs, a list of paths, a hash in Redis, a WACZ file. A
    ``path`` is a prefix or, if it is the path of a file, a list. With ``source``, only for the rows of that source."""

    kind: ResourceKind
    place: str = ""
    source: str = ""


class StepConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Sources that are queried in parallel, and the sources of their records. ``timeout`` is in seconds."""

    sources: tuple[SourceConfig, ...]
    resources: tuple[ResourceConfig, ...]
    timeout: float = DEFAULT_TIMEOUT
    grouped: bool = False
    name: str = ""


class CollectionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A collection: its steps, which are tried in turn. Only a ``sequence`` has several."""

    name: str
    steps: tuple[StepConfig, ...]


def read_collections(value: Any) -> Any:
    """Converts the setting to plain data for :class:`CollectionConfig`. Raises :class:`Misfit`."""
    if not isinstance(value, dict):
        return value
    return [_collection(name, one) for name, one in value.items()]


def check_name(name: str) -> None:
    """Raises :class:`Misfit` for what cannot be the name of a collection."""
    if not _NAME.fullmatch(name):
        raise Misfit(f"{name!r} is not a valid name of a collection: it must not contain slashes or blanks")
    if name in RESERVED:
        raise Misfit(f"no collection may be named {name}: that is a path of the server")


def _collection(name: Any, value: Any) -> dict[str, Any]:
    if not isinstance(name, str):
        raise Misfit(f"the name {name!r} of a collection is not text: write '{name}' in quotes")
    check_name(name)
    given = _settings(name, value)
    if "sequence" in given:
        others = sorted(key for key in value if key != "sequence")
        if others:
            raise Misfit(f"{name}: {others[0]} belongs in the steps of the sequence, not next to it")
        steps = given["sequence"]
        if not isinstance(steps, list) or not steps:
            raise Misfit(f"{name}: sequence must be a list of steps")
        return {"name": name, "steps": [_step(name, i, step) for i, step in enumerate(steps, 1)]}
    return {"name": name, "steps": [_sources_and_resources(name, name, given)]}


def _step(name: str, number: int, value: Any) -> dict[str, Any]:
    where = f"{name}: step {number}"
    label = name
    if isinstance(value, dict) and "name" in value:
        value = dict(value)
        label = value.pop("name")
        if not isinstance(label, str) or not label:
            raise Misfit(f"{where}: name must be text")
    given = _settings(where, value)
    if "sequence" in given:
        raise Misfit(f"{where}: a step cannot have a sequence")
    return _sources_and_resources(where, label, given)


def _settings(where: str, value: Any) -> dict[str, Any]:
    """The settings of a collection or step by their canonical names. Raises :class:`Misfit` for repeated ones."""
    if isinstance(value, str):
        return {"index": value}
    if not isinstance(value, dict):
        raise Misfit(f"{where}: must be a group of settings, or an index as text")
    given: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, item in value.items():
        name = KEYS.get(str(key))
        if name is None:
            raise Misfit(f"{where}: unknown setting {key}{nearest(str(key), KEYS)}")
        if name in given:
            raise Misfit(f"{where}: {spelled[name]} and {key} are the same setting; remove one of them")
        given[name], spelled[name] = item, str(key)
    return given


def _sources_and_resources(where: str, label: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if ("index" in given) == ("index_group" in given):
        raise Misfit(f"{where}: needs one of index, index_group and sequence")
    if "index" in given:
        sources = [_source(f"{where}: index", label, given["index"])]
    else:
        group = given["index_group"]
        if not isinstance(group, dict) or not group:
            raise Misfit(f"{where}: index_group must be a group of indexes by name")
        sources = [_source(f"{where}: index_group: {name}", str(name), item) for name, item in group.items()]
        for source in sources:
            if not _NAME.fullmatch(source["name"]) or set(source["name"]) & set(",!:"):
                raise Misfit(f"{where}: index_group: {source['name']!r} is not a valid name of an index")
    return {
        "name": label,
        "sources": sources,
        "resources": _resources(where, given.get("resource", "$live")),
        "timeout": _timeout(where, given.get("index_timeout", DEFAULT_TIMEOUT)),
        "grouped": "index_group" in given,
    }


def _timeout(where: str, value: Any) -> float:
    try:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        seconds = float(value) if is_number else parse_duration(value)  # pywb uses seconds
    except (ValueError, OverflowError, ArchecError) as error:
        raise Misfit(f"{where}: index_timeout: {error}") from error
    if not 0 < seconds < math.inf:
        raise Misfit(f"{where}: index_timeout: must be more than 0 seconds, and not without end")
    return seconds


# -- indexes ----------------------------------------------------------------------------------------


def _source(where: str, name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": name, **_shorthand(where, value.strip())}
    if isinstance(value, list):
        raise Misfit(f"{where}: several indexes need an index_group, each with a name")
    if not isinstance(value, dict):
        raise Misfit(f"{where}: must be an index as text, or a group with a type")
    kind = value.get("type")
    if kind == "xmlquery":
        raise Misfit(f"{where}: {_REFUSED['xmlquery']}")
    if not isinstance(kind, str) or kind not in SOURCE_KEYS:
        shown = "needs a type" if kind is None else f"unknown type {kind}{nearest(str(kind), SOURCE_KEYS)}"
        raise Misfit(f"{where}: {shown}; types are {', '.join(SOURCE_KEYS)}")
    known = SOURCE_KEYS[kind]
    made: dict[str, Any] = {"name": name, "type": "memento" if kind == "wb-memento" else kind}
    for key, item in value.items():
        if key == "type":
            continue
        if key not in known:
            raise Misfit(f"{where}: unknown setting {key} of type {kind}{nearest(str(key), known)}")
        if not isinstance(item, str) or not (item.strip() or (kind, key) == ("cdx", "replay_url")):
            raise Misfit(f"{where}: {key} must be text")
        made[key] = item.strip()
    return _completed(where, kind, made)


def _completed(where: str, kind: str, made: dict[str, Any]) -> dict[str, Any]:
    """A source with all required keys, each with a valid value."""
    for key in _REQUIRED.get(kind, SOURCE_KEYS[kind]):
        if key not in made:
            raise Misfit(f"{where}: type {kind} needs {key}")
    if made["type"] == "memento" and not ("timegate_url" in made or "timemap_url" in made):
        raise Misfit(f"{where}: type {kind} needs timegate_url, timemap_url or both")
    if kind == "cdx":
        made.setdefault("replay_url", _replay_of(made["api_url"], ""))
    for key in (key for key in SOURCE_KEYS[kind] if made.get(key)):
        if key == "path":
            made[key] = _path(where, made[key])
        elif key == "redis_url":
            _redis(where, made[key])
        else:
            _web(where, key, made[key])
            if "{url}" not in made[key]:
                raise Misfit(f"{where}: {key} must have {{url}} in it")
            for name in re.findall(r"\{([^{}]*)\}", made[key]):  # others are parameters of the query
                if name not in _NAMED and (close := nearest(name, _NAMED, 0.75)):
                    raise Misfit(f"{where}: {key}: unknown name {{{name}}}{close}")
    return made


def _shorthand(where: str, text: str) -> dict[str, Any]:
    """The source for an index in the short form, one line of text."""
    if text in ("$live", "live"):
        return {"type": "live"}
    if text == "$archive":
        return {"type": "archec"}
    for prefix, reason in _REFUSED.items():
        if text.startswith(prefix):
            raise Misfit(f"{where}: {reason}")
    if text.startswith("$"):
        raise Misfit(f"{where}: unknown index {text}{nearest(text, ('$live', '$archive'))}")
    scheme, plus, rest = text.partition("+")
    if plus and re.fullmatch("[a-z-]+", scheme):
        if scheme in ("memento", "wb-memento"):
            return _memento(where, rest, "im_" if scheme == "wb-memento" else "id_")
        if scheme in ("cdx", "cdxj"):
            return _cdx(where, rest)
        if scheme in ("file", "zipnum", "warc", "wacz", "archec"):
            return {"type": scheme, "path": _path(where, rest)}
        known = ("memento+", "wb-memento+", "cdx+", "cdxj+", "zipnum+", "warc+", "wacz+", "archec+")
        raise Misfit(f"{where}: unknown prefix {scheme}+{nearest(scheme + '+', known)}")
    if text.startswith(("http://", "https://")):
        return _memento(where, text, "id_")
    if text.startswith(("redis://", "rediss://")):
        return {"type": "redis", "redis_url": _redis(where, text)}
    path = _path(where, text)
    kind = "wacz" if path.endswith(".wacz") else "zipnum" if path.endswith((".idx", ".summary")) else "file"
    return {"type": kind, "path": path}


def _memento(where: str, url: str, modifier: str) -> dict[str, Any]:
    _web(where, "memento+", url)
    base = url if url.endswith("/") else url + "/"
    return {
        "type": "memento",
        "timegate_url": base + "{url}",
        "timemap_url": base + "timemap/link/{url}",
        "replay_url": f"{base}{{timestamp}}{modifier}/{{url}}",
    }


def _cdx(where: str, text: str) -> dict[str, Any]:
    url, _, prefix = text.strip().partition(" ")
    _web(where, "cdx+", url)
    if any(char.isspace() for char in prefix.strip()):
        raise Misfit(f"{where}: cdx+URL is followed by {prefix.strip()!r}, which is not one /PREFIX/")
    mark = "&" if "?" in url else "?"
    return {
        "type": "cdx",
        "api_url": f"{url}{mark}url={{url}}&closest={{closest}}",
        "replay_url": _replay_of(url, prefix.strip()),
    }


def _replay_of(api_url: str, prefix: str) -> str:
    """The URL at which the records of a CDX server are replayed: its own without ``-cdx``, or ``prefix`` next to it."""
    base = api_url.partition("?")[0].rstrip("/")
    if not prefix and base.endswith("-cdx"):
        base = base.removesuffix("-cdx")
    elif base.count("/") > 2:
        base = base.rpartition("/")[0]
    if prefix:
        base += prefix if prefix.startswith("/") else f"/{prefix}"
    return f"{base.rstrip('/')}/{{timestamp}}id_/{{url}}"


def _web(where: str, key: str, url: str) -> None:
    try:
        parts = urlsplit(url.replace("{", "").replace("}", ""))
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in url):
        raise Misfit(f"{where}: {key}: {url!r} is not an http:// or https:// URL")


def _redis(where: str, url: str) -> str:
    """A Redis URL with its key: ``redis://HOST[:PORT][/N]/KEY``."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and bool(parts.path.strip("/"))
    except ValueError:
        good = False
    if not good:
        raise Misfit(f"{where}: {url!r} is not redis://HOST/KEY or redis://HOST/N/KEY")
    return url


def _path(where: str, text: str) -> str:
    """The path in a path or a ``file:`` URL."""
    path = text.strip()
    if path.startswith("file:"):
        path = path.removeprefix("file:")
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            path = (slash if host in ("", "localhost") else f"{host}/") + rest
    if not path or "://" in path:
        raise Misfit(f"{where}: {text!r} is neither a path nor a known index")
    return path


# -- resources --------------------------------------------------------------------------------------


def _resources(where: str, value: Any) -> list[dict[str, Any]]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise Misfit(f"{where}: resource must be a path, a URL or $live, or a list of these")
    return [_resource(f"{where}: resource", text.strip()) for text in texts]


def _resource(where: str, text: str) -> dict[str, Any]:
    if text == "$live":
        return {"kind": "live"}
    if text.startswith("$"):
        raise Misfit(f"{where}: unknown resource {text}; did you mean $live?")
    scheme, plus, rest = text.partition("+")
    if plus and re.fullmatch("[a-z]+(-[a-z]+)?", scheme) and "/" not in scheme:
        if scheme == "warc-prefix":
            return {"kind": "prefix", "place": _prefix(where, rest)}
        if scheme == "warc-index":
            if rest.startswith(("redis://", "rediss://")):
                return {"kind": "redis", "place": _redis(where, rest)}
            return {"kind": "index", "place": _path(where, rest)}
        raise Misfit(f"{where}: unknown prefix {scheme}+{nearest(scheme + '+', ('warc-prefix+', 'warc-index+'))}")
    if text.startswith(("redis://", "rediss://")):
        return {"kind": "redis", "place": _redis(where, text)}
    place = _prefix(where, text)
    if "://" not in place and place.endswith(".wacz"):
        return {"kind": "wacz", "place": place}
    return {"kind": "prefix" if "://" in place else "path", "place": place}


def _prefix(where: str, text: str) -> str:
    if text.startswith(("http://", "https://")):
        _web(where, "prefix", text)
        return text if text.endswith("/") or "?" in text else text + "/"
    return _path(where, text)


def nearest(word: str, known: Sequence[str] | Mapping[str, Any], similarity: float = 0.5) -> str:
    """What a message about an unknown word adds: the most similar known one, if there is any."""
    close = difflib.get_close_matches(word.lower(), list(known), 1, similarity)
    return f"; did you mean {close[0]}?" if close else ""
