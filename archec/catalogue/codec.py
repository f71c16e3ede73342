"""Documents of the catalogue and lines of journals as JSON text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from archec.errors import CatalogueError
from archec.history import History

_T = TypeVar("_T")
REBUILD = "'archec rebuild' rebuilds the catalogue"


def _whole_number(value: object) -> int:
    """An int for a number of its own class, as MongoDB gives those of more than 32 bits."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"objects of type {type(value).__name__} are unsupported")


_encoder = msgspec.json.Encoder(enc_hook=_whole_number)
_canonical = msgspec.json.Encoder(enc_hook=_whole_number, order="sorted")
_history = msgspec.json.Decoder(dict[int, str | None])  # for decode() such a type is analysed again each time


def text_of(value: object) -> bytes:
    """JSON text without blanks, fields in their own order. Raises CatalogueError for what JSON cannot hold."""
    return _encode(_encoder, value)


def canonical(value: object) -> bytes:
    """JSON text without blanks, keys and sets sorted: equal values give equal text."""
    return _encode(_canonical, value)


def _encode(encoder: msgspec.json.Encoder, value: object) -> bytes:
    try:
        return encoder.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise CatalogueError(f"cannot be written as JSON: {error}") from error


def read(kind: type[_T], text: bytes | str) -> _T:
    """The value of a document's text. Raises CatalogueError if archec did not write it."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _broken(error) from error


def built(kind: type[_T], value: Mapping[str, Any] | Sequence[Any]) -> _T:
    """The value of a document of plain values. Raises CatalogueError if archec did not write it."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.MsgspecError, ValueError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise CatalogueError(f"a catalogue document is not a {name}: {error}", hint=REBUILD) from error


def plain(value: object) -> dict[str, Any]:
    """A struct as plain JSON values."""
    result: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    return result


def history_text(history: History) -> str:
    """``{tist: sha256 or null}`` in time order."""
    return text_of(history.as_dict()).decode()


def history_of(text: bytes | str) -> History:
    """The history of such a text. Raises CatalogueError if archec did not write it."""
    try:
        entries = _history.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _broken(error) from error
    return History.of(entries)


def _broken(error: Exception) -> CatalogueError:
    return CatalogueError(f"a catalogue document is broken: {error}", hint=REBUILD)
