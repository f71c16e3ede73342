"""Encodes and decodes documents of the catalogue and lines of journals as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from archec.errors import CatalogueError
from archec.history import History

_T = TypeVar("_T")
REBUILD = "'archec rebuild' rebuilds the catalogue"


def _whole_number(value: object) -> int:
    """Converts integers of a subclass to int: MongoDB returns integers of more than 32 bits in a class of its own."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"objects of type {type(value).__name__} are unsupported")


_encoder = msgspec.json.Encoder(enc_hook=_whole_number)
_canonical = msgspec.json.Encoder(enc_hook=_whole_number, order="sorted")
_history = msgspec.json.Decoder(dict[int, str | None])  # msgspec.json.decode() would analyse this type each time


def text_of(value: object) -> bytes:
    """Encodes a value as JSON without blanks, with fields in their own order. Raises CatalogueError if JSON cannot hold
    it."""
    return _encode(_encoder, value)


def canonical(value: object) -> bytes:
    """Encodes a value as JSON without blanks, with keys and sets sorted: equal values have equal text."""
    return _encode(_canonical, value)


def _encode(encoder: msgspec.json.Encoder, value: object) -> bytes:
    try:
        return encoder.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise CatalogueError(f"cannot be written as JSON: {error}") from error


def read(kind: type[_T], text: bytes | str) -> _T:
    """Decodes the text of a document. Raises CatalogueError if it is not valid for ``kind``."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _broken(error) from error


def built(kind: type[_T], value: Mapping[str, Any] | Sequence[Any]) -> _T:
    """Converts a document of plain values to a ``kind``. Raises CatalogueError if it is not valid."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.MsgspecError, ValueError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise CatalogueError(f"a catalogue document is not a {name}: {error}", hint=REBUILD) from error


def plain(value: object) -> dict[str, Any]:
    """Converts a struct to plain JSON values."""
    result: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    return result


def history_text(history: History) -> str:
    """Encodes a history as ``{tist: sha256 or null}``, in the order of tists."""
    return text_of(history.as_dict()).decode()


def history_of(text: bytes | str) -> History:
    """Decodes the text of a history. Raises CatalogueError if it is not valid."""
    try:
        entries = _history.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _broken(error) from error
    return History.of(entries)


def _broken(error: Exception) -> CatalogueError:
    return CatalogueError(f"a catalogue document is broken: {error}", hint=REBUILD)
