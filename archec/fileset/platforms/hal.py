"""HAL: deposits and their files, by the search API."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from archec.fileset.checksums import checksums
from archec.fileset.fields import JsonValue
from archec.fileset.model import IngestRequest, Resource
from archec.fileset.platforms.base import (
    FilesetPlatformHelper,
    Question,
    Questions,
    check_known,
    check_own,
    download_url,
    item_name,
    manifest_file,
    path_of,
)
from archec.fileset.status import FilesetPlatformScopeError, PlatformNotFound


class HalHelper(FilesetPlatformHelper):
    """hal.science and its portals."""

    name = "hal"
    hosts = ("hal.science", "*.hal.science", "*.archives-ouvertes.fr", "hal.inria.fr", "hal.inrae.fr")
    api = "https://api.archives-ouvertes.fr"
    pages = ("/{work}", "/{work}v{version}")
    pattern = re.compile(r"/([a-z][a-z0-9]*-[0-9]{6,10})(?:v([0-9]{1,9}))?(?:/|$)", re.I)

    def id_in(self, url: str) -> str:
        """The id of the deposit, with the version if the URL has one."""
        found = self.pattern.search(path_of(url))
        return found[0].strip("/").lower() if found is not None else ""

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the version of a deposit in the URL, or for its newest version."""
        url = self.url_of(request, resource)
        found = self.named_in(url)
        asked, version, base = found[1].lower(), found[2], self.base(url)
        wanted = f"halId_s:{asked}" + (f"%20AND%20version_i:{version}" if version else "")
        names = "halId_s,version_i,title_s,files_s,fileAnnexes_s,uri_s,submittedDate_s"
        answer = yield Question(f"{base}/search/?q={wanted}&fl={names}&wt=json&sort=version_i%20desc&rows=1")
        docs = answer.json()["response"]["docs"]
        if not docs.is_list:
            raise docs.error("a list")
        row = next(docs.items(), None)
        if row is None:
            raise PlatformNotFound(f"HAL has no deposit {asked}")
        known, number = row["halId_s"].text(), row["version_i"].whole_or_none() or 1
        check_known(asked, known)
        if version and int(version) != number:
            raise FilesetPlatformScopeError(f"version {version} was asked for, and the answer is of {number}")
        fields = (*row["files_s"].one_or_more(), *row["fileAnnexes_s"].one_or_more())
        urls = dict.fromkeys(self._download(one, base, known) for one in fields)
        manifest = [manifest_file(unquote(urlsplit(one).path.rpartition("/")[2]) or known, None, checksums(), one)
                    for one in urls]  # fmt: skip
        return self.item(
            url, f"{known}v{number}", manifest, title=row["title_s"].first.text_or_none(), order=[number],
            work_id=known, name=item_name(self.domain(url), f"{known}v{number}"), page=row["uri_s"].text_or_none(),
            published=row["submittedDate_s"].tist(),
        )  # fmt: skip

    def _download(self, field: JsonValue, base: str, known: str) -> str:
        """The URL of a file. Raises PlatformError if it is one of another deposit."""
        url = download_url(field, base)
        if self.serves(url):
            check_own(field, url, self.pattern.search(path_of(url).lower()), known.lower(), "deposit")
        return url
