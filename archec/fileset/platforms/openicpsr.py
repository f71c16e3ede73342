"""openICPSR, which has the data of the American Economic Association: pages with metadata, and zip files that require a
login. It has no API.

With the cookie of a session (``token`` names its environment variable) the zip file is fetched, and the files in it are
the manifest. Without it the data set is ``platform-restricted``.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin

from archec.fileset.fields import tist_of
from archec.fileset.model import IngestRequest, Resource
from archec.fileset.pages import Page
from archec.fileset.platforms.base import FilesetPlatformHelper, PlatformAnswer, Question, Questions, item_name, path_of
from archec.fileset.status import (
    FilesetPlatformScopeError,
    PlatformError,
    PlatformGone,
    PlatformRestrictedError,
)

_DOI = re.compile(r"10\.3886/E([0-9]+)(V[0-9]+)?$", re.I)
_GONE = re.compile(
    r"\b(?:project|study|deposit|data(?: ?set)?|version)\b[^<>]{0,100}?"
    r"\b(?:(?:has|have) been (?:withdrawn|removed|retracted|deaccessioned)|no longer available)\b", re.I
)  # fmt: skip


class OpenIcpsrHelper(FilesetPlatformHelper):
    """www.openicpsr.org."""

    name = "openicpsr"
    hosts = ("www.openicpsr.org", "openicpsr.org", "deposit.icpsr.umich.edu")
    secret_header = ("Cookie", "{}")
    pages = ("/openicpsr/project/{work}", "/openicpsr/project/{work}/version/{version}/view")
    pattern = re.compile(
        r"/(?:openicpsr/)?project/([0-9]+)(?![0-9])(?:/version/([Vv][0-9]{1,9})(?![0-9])|(?!/version/))"
    )

    def id_in(self, url: str) -> str:
        """The ids of the project and its version, if the URL has one."""
        found = self.pattern.search(path_of(url))
        return f"{found[1]}{found[2] or ''}".upper() if found is not None else ""

    def questions(self, request: IngestRequest, resource: Resource | None, *, follow: bool = False) -> Questions:
        """Asks for the page of one version of a project; if the URL has none, for the first one, which lists all."""
        url = self.url_of(request, resource)
        found = self.named_in(url)
        asked, base = found[1], self.base(url)
        version = (found[2] or "V1").upper()
        page = f"{base}/openicpsr/project/{asked}/version/{version}/view"
        answer = yield Question(page, accept="text/html", page=True)
        answer.check()
        link = rf"/openicpsr/project/{asked}/version/(V[0-9]{{1,9}})/view\b"
        listed = dict.fromkeys(re.findall(link, answer.body.decode("latin-1")))
        newest = max(listed, key=lambda one: int(one[1:]), default=version)
        if newest != version and not found[2]:
            if not follow:
                members = [f"{base}/openicpsr/project/{asked}/version/{one}/view" for one in listed]
                raise FilesetPlatformScopeError(f"project {asked} has several versions", members=members)
            version, page = newest, page.replace("/V1/", f"/{newest}/")
            answer = yield Question(page, accept="text/html", page=True)
            answer.check()
        meta = _meta(answer)
        doi = _DOI.search(meta.get("dc.identifier", ""))
        if doi is None:
            if _GONE.search(answer.body[:200_000].decode("utf-8", "replace")):
                raise PlatformGone("according to its page, it is no longer there")
            raise PlatformError("meta DC.identifier: the page has no DOI of a project")
        if doi[1] != asked or (doi[2] or version).upper() != version.upper():
            known = f"{doi[1]} {doi[2] or ''}".strip()
            raise FilesetPlatformScopeError(f"{asked} {version} was asked for, and the page is of {known}")
        where = f"/openicpsr/{asked}/fcr:versions/{version}"
        item = self.item(
            url, f"{asked}{version}", [], title=meta.get("dc.title"), version=version, order=[int(version[1:])],
            work_id=asked, name=item_name(self.domain(url), asked, version), page=page,
            meta={"date": meta.get("dc.date"), "doi": doi[0]}, work_doi=f"10.3886/E{asked}",
            bundle=urljoin(page, f"download/project?dirPath={where}"), bundle_only=True,
            published=tist_of(meta.get("dc.date", "")),
        )  # fmt: skip
        if not self.config.token:
            raise PlatformRestrictedError(
                f"{meta.get('dc.title', asked)[:200]}: its files require a login;"
        " fileset.platforms.openicpsr.token may name an environment variable with the cookie of a session",
                item=item,
            )
        return item


def _meta(answer: PlatformAnswer) -> dict[str, str]:
    """The meta elements of a page by lower-case names; of several with one name the first."""
    found: dict[str, str] = {}
    for name, content in Page(answer.body, answer.headers.get("content-type", "")).meta():
        found.setdefault(name.lower(), content)
    return found
