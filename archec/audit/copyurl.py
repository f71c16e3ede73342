"""A second copy of an archive behind a web server."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from urllib.parse import quote

import httpx

from archec.errors import ArchecError, ConfigError, NotHeld, StorageFailed
from archec.store.layout import DESCRIPTOR, RUNS, Layout

__all__ = ["UrlCopy"]

_CHUNK = 1 << 18
_TIMEOUT = 60.0


class UrlCopy:
    """An archive folder behind a web server that serves its files as they are, and follows its links."""

    def __init__(self, url: str, layout: Layout, *, timeout: float = _TIMEOUT) -> None:
        self._base, self._layout = url.rstrip("/"), layout
        self.where = self._base
        self._client = httpx.Client(headers={"Accept-Encoding": "identity"}, timeout=timeout)
        try:
            b"".join(self._get(DESCRIPTOR))
        except ArchecError as error:
            self.close()
            raise ConfigError(
                f"{self.where}: is not the URL of an archive folder: {error.message}",
                hint=f"its {DESCRIPTOR} must be there to be fetched",
            ) from error

    def obi(self, tist: int, id: str) -> Iterator[bytes]:  # noqa: A002
        """See :class:`archec.audit.copies.Copy`."""
        return self._get(self._layout.path(tist, id))

    def journal(self, name: str) -> Iterator[bytes]:
        """See :class:`archec.audit.copies.Copy`."""
        return self._get(f"{RUNS}/{name}")

    def _get(self, path: str) -> Iterator[bytes]:
        url = f"{self._base}/{quote(path)}"
        try:
            with self._client.stream("GET", url) as response:
                if response.status_code in (404, 410):
                    raise NotHeld(f"{url}: is not held")
                if response.status_code != 200:
                    raise StorageFailed(f"{url}: HTTP status {response.status_code}")
                yield from response.iter_raw(_CHUNK)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise StorageFailed(f"{url}: {error or type(error).__name__}") from error

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def __enter__(self) -> UrlCopy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
