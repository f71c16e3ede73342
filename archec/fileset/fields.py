"""Typed reading of untrusted JSON from platforms, with errors that name the path of a field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec
from msgspec import Raw

from archec.fileset.status import PlatformError
from archec.tist import MAX_TIST

_LONGEST = 100_000
"""Characters of a text; no name, URL or title is longer."""
_MOST = 2**63 - 1
_MOST_VALUES = 5_000_000
"""Values of a document, each of some 50 bytes in memory; a manifest of 100,000 files has 1 to 3 million."""
_LARGE = 1 << 16
"""Bytes from which on the items of an object or list are decoded one by one, as they are used: decoded, they need
several times the memory."""
_ITEMS: dict[bytes, msgspec.json.Decoder[Any]] = {
    b"{": msgspec.json.Decoder(dict[str, Raw]), b"[": msgspec.json.Decoder(list[Raw]),
}  # fmt: skip
_NAMES = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
_MISSING: Any = object()


class JsonValue:
    """A value in a JSON document, and its path (``files[3].size``). Its methods raise PlatformError if the value is not
    of the type that they return. A large value may be given undecoded, as ``Raw``."""

    __slots__ = ("_encoded", "_value", "path")

    def __init__(self, value: Any, path: str = "") -> None:
        self._value, self._encoded = value, None
        self.path = path
        if isinstance(value, Raw):
            self._value = _items(value) if len(memoryview(value)) > _LARGE else None
            if self._value is None:
                self._value = _decoded(value, self.shown)
            else:
                self._encoded = value

    def __getitem__(self, name: str) -> JsonValue:
        """The field of an object; a missing one is null. Raises PlatformError if the value is neither an object nor
        null."""
        path = f"{self.path}.{name}" if self.path else name
        if self.is_null:
            return JsonValue(_MISSING, path)
        if not isinstance(self._value, dict):
            raise self.error("an object")
        return JsonValue(self._value.get(name, _MISSING), path)

    def __contains__(self, name: str) -> bool:
        return isinstance(self._value, dict) and name in self._value

    @property
    def is_null(self) -> bool:
        """Whether the value is null or missing."""
        return self._value is None or self._value is _MISSING

    @property
    def is_object(self) -> bool:
        return isinstance(self._value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self._value, list)

    @property
    def raw(self) -> Any:
        """The JSON value; None if it is missing."""
        if self._encoded is not None:
            return _decoded(self._encoded, self.shown)
        return None if self._value is _MISSING else self._value

    def text(self) -> str:
        """Non-empty text."""
        found = self.text_or_none()
        if not found:
            raise self.error("text")
        return found

    def text_or_none(self) -> str | None:
        """Text; None if it is null or missing. Lone surrogates are escaped."""
        if self.is_null:
            return None
        if not isinstance(self._value, str):
            raise self.error("text")
        if len(self._value) > _LONGEST:
            raise PlatformError(f"{self.shown}: has {len(self._value)} characters")
        return clean(self._value)

    def word(self) -> str:
        """An identifier: text, or a whole number as text."""
        if isinstance(self._value, int) and not isinstance(self._value, bool):
            return str(self.whole_or_none())
        return self.text()

    def word_or_none(self) -> str | None:
        """An identifier; None if it is null, missing or empty."""
        return None if self.is_null or self._value == "" else self.word()

    def whole_or_none(self) -> int | None:
        """A whole number, 0 or more, possibly written as text; None if it is null, missing or empty text."""
        value = self._value
        if self.is_null or value == "":
            return None
        written = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20
        if written or (isinstance(value, float) and value.is_integer()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise self.error("a whole number, 0 or more")
        return value

    def flag(self) -> bool:
        """A boolean, or one of the texts ``true`` and ``false``; False if it is null or missing."""
        if self.is_null:
            return False
        if self._value in ("true", "false"):
            return bool(self._value == "true")
        if not isinstance(self._value, bool):
            raise self.error("true or false")
        return self._value

    def items(self) -> Iterator[JsonValue]:
        """Yields the items of a list; none if it is null or missing."""
        if self.is_null:
            return
        if not isinstance(self._value, list):
            raise self.error("a list")
        for number, item in enumerate(self._value):
            yield JsonValue(item, f"{self.path}[{number}]")

    def members(self) -> Iterator[tuple[str, JsonValue]]:
        """Yields the names and fields of an object; none if it is null or missing."""
        if self.is_null:
            return
        if not isinstance(self._value, dict):
            raise self.error("an object")
        for name in self._value:
            yield clean(name), self[name]

    def one_or_more(self) -> Iterator[JsonValue]:
        """Yields the items of a list, or the value itself if it is neither a list nor null."""
        if self.is_list:
            yield from self.items()
        elif not self.is_null:
            yield self

    @property
    def first(self) -> JsonValue:
        """The first item of a list, null if it is empty; or the value itself if it is no list."""
        return next(self.one_or_more(), JsonValue(None, self.path))

    def tist(self) -> int:
        """A date (its first second, UTC) or time as a tist; 0 if it is null, missing or not a date."""
        text = self.text_or_none()
        return 0 if text is None else tist_of(text)

    @property
    def shown(self) -> str:
        """The path, for messages."""
        return self.path[:300] or "the answer"

    def error(self, wanted: str) -> PlatformError:
        """Returns the error for a value that is not of the type ``wanted``."""
        found = "missing" if self._value is _MISSING else "null" if self._value is None else _NAMES[type(self._value)]
        more = f": {str(self._value)[:60]!r}" if isinstance(self._value, (str, int, float)) else ""
        return PlatformError(f"{self.shown}: must be {wanted}, is {found}{clean(more)}")


def first_of(*values: JsonValue) -> JsonValue:
    """The first value that is not null; the last one if all are."""
    return next((one for one in values if not one.is_null), values[-1])


def parse(body: bytes, name: str = "", objects: Callable[[list[tuple[str, Any]]], Any] | None = None) -> JsonValue:
    """Parses JSON. ``name`` is the path of its root in messages, ``objects`` builds an object from its members. Raises
    PlatformError if it is invalid or too large."""
    if sum(map(body.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise PlatformError(f"{name or 'the answer'}: has more than {_MOST_VALUES} values")
    return JsonValue(Raw(body) if objects is None else _decoded(body, name or "the answer", objects), name)


def _items(encoded: Raw) -> Any:
    """The items of an object or list, undecoded; None for any other value, and for JSON that msgspec does not accept
    (control characters and lone surrogates in texts)."""
    data = memoryview(encoded)
    decoder = _ITEMS.get(bytes(data[:1]))
    try:
        return decoder.decode(data) if decoder is not None else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _decoded(data: bytes | Raw, name: str, objects: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    try:
        return json.loads(bytes(data), strict=False, parse_constant=_refuse, object_pairs_hook=objects)
    except (ValueError, RecursionError) as error:
        reason = str(error)[:200] if isinstance(error, ValueError) else "nested too deeply"
        raise PlatformError(f"{name}: is not JSON: {reason}") from error


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def clean(text: str) -> str:
    """Escapes lone surrogates, so that the text can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def tist_of(text: str) -> int:
    """The tist of a date or time in ISO 8601 or a similar format; 0 for anything else."""
    plain = text.strip().replace("Z", "+00:00").replace(" UTC", "+00:00")
    for candidate in (plain, plain[:19], plain[:10]):
        try:
            when = datetime.fromisoformat(candidate)
        except ValueError:
            continue
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        return min(max(0, int(when.timestamp())), MAX_TIST)
    return 0
