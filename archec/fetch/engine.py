"""The library h2, set up for archec: what is offered to a server, and what is overlooked in its answers."""

from __future__ import annotations

from collections.abc import Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hpack import Decoder, HeaderTuple

__all__ = ["STREAM_WINDOW", "engine", "name_of"]

STREAM_WINDOW = 1 << 19
"""Bytes of one body that may wait to be taken, or be under way."""


def engine(max_bytes: int) -> H2Connection:
    """A client's end of the protocol, as lenient with sloppy header fields as llhttp is for HTTP/1.1."""
    made = H2Connection(
        H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False,
            normalize_outbound_headers=False, validate_inbound_headers=False, normalize_inbound_headers=False,
        )
    )  # fmt: skip
    made.local_settings = Settings(
        client=True,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            SettingCodes.MAX_CONCURRENT_STREAMS: 100,
            SettingCodes.MAX_HEADER_LIST_SIZE: max_bytes,
        },
    )
    del made.local_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]  # a server's to offer
    made.decoder = _LengthsHidden(max_bytes)
    return made


def name_of(code: ErrorCodes | int) -> str:
    """An error code as the protocol calls it."""
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"error {int(code)}"


class _LengthsHidden(Decoder):
    """Header fields as they came, but for the name of Content-Length, which is given in capitals.

    h2 compares an answer's length with it and ends the whole connection, with all other answers on it,
    where one is wrong. It does not look at the field under this name; whoever reads the body does.
    """

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        return [
            HeaderTuple(b"Content-Length", field[1]) if field[0] == b"content-length" else field
            for field in super().decode(data, raw)
        ]
