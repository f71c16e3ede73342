"""What helpers make of platforms' answers: of good ones, of those that stand in the way, and of any JSON at all."""

from __future__ import annotations

import copy
import itertools
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import fileset_samples as made
import pytest
from fileset_samples import answering, item_of, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.config.types import PlatformConfig
from archec.fileset import pages
from archec.fileset.checksums import other_checksum
from archec.fileset.fields import JsonValue
from archec.fileset.model import FilesetPlatformItem, IngestRequest, Resource
from archec.fileset.platforms.archiveorg import ArchiveOrgHelper
from archec.fileset.platforms.base import FilesetPlatformHelper, PlatformAnswer, Question, license_of, same_origin
from archec.fileset.platforms.dataverse import DataverseHelper
from archec.fileset.platforms.dryad import DryadHelper
from archec.fileset.platforms.dspace import DspaceHelper
from archec.fileset.platforms.figshare import FigshareHelper, FourTuHelper
from archec.fileset.platforms.generic import GenericHelper, links
from archec.fileset.platforms.hal import HalHelper
from archec.fileset.platforms.mendeley import MendeleyHelper
from archec.fileset.platforms.openicpsr import OpenIcpsrHelper
from archec.fileset.platforms.osf import OsfHelper
from archec.fileset.platforms.registry import Registry
from archec.fileset.platforms.zenodo import B2shareHelper, InvenioHelper, ZenodoHelper
from archec.fileset.status import (
    EmptyManifest,
    FilesetPlatformScopeError,
    FilesetProblem,
    NoPlatformMatch,
    PlatformError,
    PlatformGone,
    PlatformHttpError,
    PlatformNotFound,
    PlatformRestrictedError,
)
from archec.fileset.summary import html_biblio
from archec.tist import MAX_TIST

MD5 = "900150983cd24fb0d6963f7d28e17f72"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
Case = tuple[type[FilesetPlatformHelper], str, Mapping[str, object]]
DV = "https://dataverse.harvard.edu/dataset.xhtml?persistentId=doi:10.7910/DVN/ABCDEF"
HAL_QUERY = (
    "&fl=halId_s,version_i,title_s,files_s,fileAnnexes_s,uri_s,submittedDate_s&wt=json&sort=version_i%20desc&rows=1"
)
PERSISTENT = "/api/datasets/:persistentId/?persistentId=doi%3A10.7910%2FDVN%2FABCDEF"

CASES: Mapping[str, Case] = {
    "zenodo": (ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": made.ZENODO}),
    "figshare": (FigshareHelper, "https://figshare.com/articles/dataset/p/123456/2", {"/articles/": made.FIGSHARE}),
    "dataverse": (DataverseHelper, DV, {"/datasets/": made.DATAVERSE}),
    "archiveorg": (ArchiveOrgHelper, "https://archive.org/details/prices", {"/metadata/": made.ARCHIVEORG}),
    "osf": (OsfHelper, "https://osf.io/y8t6r/", made.OSF),
    "dryad": (DryadHelper, "https://datadryad.org/dataset/doi:10.5061/dryad.abc", made.DRYAD),
    "mendeley": (MendeleyHelper, "https://data.mendeley.com/datasets/abc123/1", made.MENDELEY),
    "4tu": (FourTuHelper, f"https://data.4tu.nl/datasets/{UUID}/1", made.FOUR_TU),
    "b2share": (B2shareHelper, "https://b2share.eudat.eu/records/0123456789abcdef0123456789abcdef", made.B2SHARE),
    "dspace7": (DspaceHelper, f"https://econ.example.org/items/{UUID}", made.DSPACE7),
    "dspace6": (DspaceHelper, "https://econ.example.org/handle/10419/7", made.DSPACE6),
    "hal": (HalHelper, "https://hal.science/hal-01234567v2", made.HAL),
}


@pytest.mark.parametrize("name", CASES)
def test_each_platform_gives_its_files(name: str) -> None:
    cls, url, bodies = CASES[name]
    found = item_of(cls, url, bodies)
    assert found.platform_name == cls.name
    assert found.platform_id == ("10419/7" if name == "dspace7" else cls().id_in(url))
    assert found.work_id
    assert found.title == "Prices"
    assert found.manifest
    for file in found.manifest:
        assert file.platform_url is None or file.platform_url.startswith("https://")


def test_zenodo() -> None:
    found = item_of(*CASES["zenodo"])
    first = (found.manifest or [])[0]
    assert (first.path, first.size, first.md5) == ("data/p.csv", 3, MD5)
    assert (found.platform_id, found.work_id, found.order) == ("7", "6", (2,))
    assert (found.archiveorg_item_name, found.published) == ("zenodo.org-7", 1767312000)


def zenodo(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(made.ZENODO), **changes}


def test_the_older_forms_of_zenodo() -> None:
    row = {"filename": "p.csv", "filesize": 3, "checksum": MD5, "links": {
        "self": "https://zenodo.org/api/records/7/files/p.csv",
        "download": "https://zenodo.org/api/records/7/files/p.csv/content"}}  # fmt: skip
    search = {"hits": {"hits": [zenodo(files=[row])]}}
    (file,) = item_of(ZenodoHelper, "https://zenodo.org/record/7", {"/records/7": search}).manifest or ()
    assert (file.path, file.size, file.md5) == ("p.csv", 3, MD5)
    assert (file.platform_url or "").endswith("/content")
    row = {"bucket": "b", "type": "csv", "key": "p.csv", "size": 3, "checksum": f"md5:{MD5}", "links": {
        "self": "https://zenodo.org/api/files/b/p.csv"}}  # fmt: skip
    (file,) = item_of(ZenodoHelper, "https://zenodo.org/record/7", {"/records/7": zenodo(files=[row])}).manifest or ()
    assert file.platform_url == "https://zenodo.org/api/files/b/p.csv"


def test_any_installation_of_invenio_is_known_by_its_page() -> None:
    url, api = "https://data.example.edu/records/7", "https://data.example.edu/api/records/7"
    body, header = f'<a href="{api}">'.encode(), {"link": f"<{api}>; rel=linkset"}
    request = IngestRequest("https://example.edu/go")
    for resource in (Resource(url, 200, {}, body), Resource(url, 200, header)):
        helper = Registry({}).match(request, resource)
        assert helper is not None
        assert helper.name == "inveniordm"
        found = item_of(InvenioHelper, request.base_url, {api: zenodo()}, resource)
        assert (found.platform_domain, found.platform_id) == ("data.example.edu", "7")
    other = Registry({}).match(request, Resource(url, 200, {}, b"<a href='https://zenodo.org/api/records/7'>"))
    assert other is not None
    assert other.name == "generic"


def test_invenio_by_its_own_form_asks_for_files_that_the_record_lacks() -> None:
    record = {
        "id": "ab-1", "parent": {"id": "ab-0"}, "pids": {"doi": {"identifier": "10.1234/ab-1"}},
        "is_published": True, "access": {"record": "public", "files": "public"},
        "metadata": {"title": "T"}, "files": {"enabled": True}, "versions": {"index": 2, "is_latest": True},
        "links": {"files": "https://rdm.example.org/api/records/ab-1/files"},
    }  # fmt: skip
    files = {"entries": [{"key": "p", "size": 3, "checksum": f"md5:{MD5}", "mimetype": "text/csv", "links": {
        "self": "https://rdm.example.org/api/records/ab-1/files/p",
        "content": "https://rdm.example.org/api/records/ab-1/files/p/content"}}]}  # fmt: skip
    bare = {**record, "files": {"enabled": True, "count": 1, "entries": {"p": {"key": "p", "size": 3}}}}
    (file,) = item_of(InvenioHelper, "https://rdm.example.org/records/ab-1", {"/records/ab-1": bare}).manifest or ()
    assert file.platform_url == "https://rdm.example.org/api/records/ab-1/files/p/content"
    found = item_of(InvenioHelper, "https://rdm.example.org/records/ab-1", {"/files": files, "/records/ab-1": record})
    assert [file.mimetype for file in found.manifest or ()] == ["text/csv"]
    assert (found.work_id, (found.archiveorg_item_meta or {})["doi"]) == ("ab-0", "10.1234/ab-1")
    assert found.order == (2,), "an older version that comes later is not the present one"
    later = {**zenodo(), "metadata": {"title": "T"}, "versions": {"index": 2}}
    found = item_of(InvenioHelper, "https://rdm.example.org/records/7", {"/records/7": later})
    assert found.order == (7,), "archives have the order by such ids, which are greater than any index"


def test_a_field_of_another_type_only_matters_if_it_is_needed() -> None:
    meta = {"embargo_date": {}, "titles": 2, "creators": [{"name": "Doe", "person_or_org": "x"}],
            "relations": {"version": [{"index": 0, "parent": ""}]}}  # fmt: skip
    record = zenodo(versions=[1])
    record["metadata"] |= meta
    found = item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": record})
    assert (found.title, found.work_id, found.order) == ("Prices", "6", (0,))
    assert (found.archiveorg_item_meta or {})["creator"] == ["Doe"]
    assert item_of(FigshareHelper, CASES["figshare"][1], {"/articles/": {**made.FIGSHARE, "embargo_date": {}}}).manifest
    del record["conceptrecid"]
    with pytest.raises(PlatformError, match=r"^metadata\.relations\.version\[0\]\.parent: must be an object"):
        item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": record})


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (zenodo(id=8), FilesetPlatformScopeError),
        (zenodo(conceptrecid="7"), FilesetPlatformScopeError),
        (zenodo(conceptrecid=7), FilesetPlatformScopeError),
        (zenodo(status="draft"), PlatformNotFound),
        (zenodo(submitted=False), PlatformNotFound),
        (zenodo(state="unsubmitted"), PlatformNotFound),
        (zenodo(metadata={"publication_state": "draft"}), PlatformNotFound),
        (zenodo(tombstone={"reason": "x"}), PlatformGone),
        (zenodo(deletion_status={"is_deleted": True, "status": "D"}), PlatformGone),
        (zenodo(files={"enabled": False}), EmptyManifest),
        ({"status": 404, "message": "no"}, PlatformError),
        ([], PlatformError),
        (410, PlatformGone),
        (403, PlatformRestrictedError),
        (404, PlatformNotFound),
    ],
)
def test_what_stands_in_the_way_at_zenodo(record: object, problem: type[FilesetProblem]) -> None:
    with pytest.raises(problem):
        item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": record})


def test_a_concept_stands_for_its_newest_version_only_if_asked_for() -> None:
    helper, request = ZenodoHelper(), IngestRequest("https://zenodo.org/records/6")
    asking = helper.questions(request, None, follow=True)
    question = next(asking)
    answer = answering({"/records/6": made.ZENODO})(question)
    with pytest.raises(StopIteration) as done:
        asking.send(answer)
    assert done.value.value.platform_id == "7"


def test_the_doi_of_a_concept_stands_for_all_versions_even_if_it_leads_to_one() -> None:
    url, bodies = "https://zenodo.org/records/7", {"/records/7": {**made.ZENODO, "conceptdoi": "10.5281/zenodo.6"}}
    helper = ZenodoHelper(ask=answering(bodies))
    with pytest.raises(FilesetPlatformScopeError, match=r"zenodo\.6 stands for all versions of a record: 7"):
        helper.process_request(IngestRequest(url, identifier="10.5281/zenodo.6"))
    assert helper.process_request(IngestRequest(url, identifier="10.5281/zenodo.7")).platform_id == "7"


def test_b2share() -> None:
    (file,) = item_of(*CASES["b2share"]).manifest or ()
    assert (file.path, file.platform_url) == ("p q.csv", "https://b2share.eudat.eu/api/files/b/p%20q.csv")
    record: Any = {**made.B2SHARE["/records/"]}  # type: ignore[dict-item]
    links = {"self": "https://b2share.eudat.eu/api/files/b/p"}
    bucket = {"contents": [{**row, "links": links} for row in record.pop("files")]}
    (file,) = item_of(B2shareHelper, CASES["b2share"][1], {"/records/": record, "/files/b": bucket}).manifest or ()
    assert (file.path, file.md5, file.platform_url) == ("p q.csv", MD5, "https://b2share.eudat.eu/api/files/b/p")
    closed = copy.deepcopy(made.B2SHARE["/records/"])
    closed["metadata"] |= {"open_access": False, "embargo_date": "2999-01-02"}  # type: ignore[index]
    with pytest.raises(PlatformRestrictedError, match="until 2999-01-02"):
        item_of(B2shareHelper, CASES["b2share"][1], {"/records/": closed})


@pytest.mark.parametrize(("until", "due"), [("2999-01-02", 32472230400), ("9999-12-31T23:59:59-12:00", MAX_TIST)])
def test_an_embargo_says_until_when(until: str, due: int) -> None:
    meta = {**made.ZENODO["metadata"], "access_right": "embargoed", "embargo_date": until}  # type: ignore[dict-item]
    with pytest.raises(PlatformRestrictedError, match=f"until {until}") as caught:
        item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": zenodo(metadata=meta, files=[])})
    assert (caught.value.due, caught.value.platform_id) == (due, "7")


@pytest.mark.parametrize("place", ["api/records/8/files/p/content", "records/8/files/p?download=1", "record/8/files/p"])
def test_a_download_of_another_record_is_an_error(place: str) -> None:
    record = zenodo()
    record["files"][0]["links"]["self"] = f"https://zenodo.org/{place}"
    with pytest.raises(PlatformError, match=r"files\[0\]\.links\.self"):
        item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": record})
    record["files"][0]["links"]["self"] = f"https://zenodo.org/api/files/bucket/{place.removeprefix('api/')}"
    assert item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": record}).manifest


def test_communities_and_collections_name_their_members() -> None:
    hits = {"hits": {"hits": [{"id": 7}, {"id": 8}]}}
    with pytest.raises(FilesetPlatformScopeError, match="7, 8"):
        item_of(ZenodoHelper, "https://zenodo.org/communities/econ", {"communities=econ": hits})
    bodies = {"/communities/econ/records?": hits, "/records?communities=": {"hits": {"hits": [{"id": 9}]}}}
    with pytest.raises(FilesetPlatformScopeError, match=r"7, 8$"):
        item_of(InvenioHelper, "https://rdm.example.org/communities/econ/records?q=", bodies)
    with pytest.raises(FilesetPlatformScopeError, match="123456"):
        item_of(FigshareHelper, "https://figshare.com/collections/x/98765", {"/collections/98765": [{"id": 123456}]})
    with pytest.raises(FilesetPlatformScopeError, match="98765 is a project, not an article: 123456"):
        item_of(FigshareHelper, "https://figshare.com/projects/x/98765", {"/projects/98765": [{"id": 123456}]})
    with pytest.raises(FilesetPlatformScopeError, match=UUID):
        item_of(FourTuHelper, f"https://data.4tu.nl/collections/{UUID}", {"/v2/": [{"id": None, "uuid": UUID}]})
    bodies = {**made.OSF, "children": {"data": [{"id": "abcde"}]}}
    with pytest.raises(FilesetPlatformScopeError, match="abcde"):
        item_of(OsfHelper, "https://osf.io/y8t6r/", bodies)
    bodies = {"/files/": {"data": {"relationships": {"target": {"data": {"id": "y8t6r"}}}}}}
    with pytest.raises(FilesetPlatformScopeError, match="y8t6r"):
        item_of(OsfHelper, "https://osf.io/bexrz/download", bodies)
    contents = {"data": [{"persistentUrl": "https://doi.org/10.7910/DVN/A"}]}
    with pytest.raises(FilesetPlatformScopeError, match="DVN/A"):
        item_of(DataverseHelper, "https://dataverse.harvard.edu/dataverse/econ", {"/dataverses/econ/": contents})


def test_figshare() -> None:
    found = item_of(*CASES["figshare"])
    first, second, link = found.manifest or ()
    assert (first.md5, second.md5, link.status) == (MD5, None, "skipped-link-only")
    assert (found.platform_id, found.version, found.archiveorg_item_name) == ("123456", "2", "figshare.com-123456-v2")
    assert found.web_bundle_url == "https://ndownloader.figshare.com/articles/123456/versions/2"
    article = {**made.FIGSHARE, "folder_structure": {"2": "/data/sub", "3": None}}
    found = item_of(FigshareHelper, CASES["figshare"][1], {"/articles/": article})
    assert [file.path for file in found.manifest or ()] == ["p.csv", "data/sub/p.csv", "elsewhere"]
    unversioned = item_of(FigshareHelper, "https://figshare.com/articles/software/123456", {"articles": made.FIGSHARE})
    assert unversioned.version == "2"


def test_an_article_of_figshare_lists_ten_of_its_files_only() -> None:
    rows = [{"id": number, "name": f"{number}.csv", "size": 3, "is_link_only": False, "computed_md5": MD5,
             "download_url": f"https://ndownloader.figshare.com/files/{number}"} for number in range(1007)]  # fmt: skip
    article = {**made.FIGSHARE, "files": rows[:10], "size": 30}
    pages = {"/files?page=1&page_size=1000": rows[:1000], "/files?page=2&page_size=1000": rows[1000:]}
    url = "https://figshare.com/articles/dataset/p/123456/2"
    found = item_of(FigshareHelper, url, {**pages, "/articles/123456/versions/2": article})
    assert [file.path for file in found.manifest or ()] == [row["name"] for row in rows]
    short = {f"/files?page={n}&page_size=1000": rows[n * 100 - 100 : n * 100] for n in range(1, 13)}
    whole = {**article, "size": 3 * len(rows)}
    found = item_of(FigshareHelper, url, {**short, "/articles/123456/versions/2": whole})
    assert [file.path for file in found.manifest or ()] == [row["name"] for row in rows], "a hundred at a time"
    with pytest.raises(PlatformError, match="page 2 lists a file again"):
        item_of(FigshareHelper, url, {"/versions/2/files": rows[:1000], "/articles/123456/versions/2": whole})
    bodies = {"/versions/2/files": 404, "/articles/123456/versions/2": article}
    assert len(item_of(FigshareHelper, url, bodies).manifest or ()) == 10
    with pytest.raises(PlatformNotFound):
        item_of(FigshareHelper, url, {**bodies, "/articles/123456/versions/2": {**article, "size": 33}})
    with pytest.raises(PlatformError, match="files: there are 10 files, but 9 are listed"):
        item_of(FigshareHelper, url, {**bodies, "/versions/2/files": rows[:9]})


def test_4tu_lists_all_files_and_says_little_of_what_is_embargoed() -> None:
    cls, url, bodies = CASES["4tu"]
    article: Any = bodies["/v2/articles/"]
    found = item_of(cls, url, {"/v2/articles/": {**article, "files": article["files"] * 10, "size": None}})
    assert len(found.manifest or ()) == 10
    embargo = {"embargo_date": "2999-01-01", "embargo_type": "article", "embargo_title": "", "embargo_reason": ""}
    with pytest.raises(PlatformRestrictedError) as caught:
        item_of(cls, url, {"/v2/articles/": embargo})
    assert caught.value.due == 32472144000


def test_a_download_of_another_article_of_4tu_is_an_error() -> None:
    cls, url, bodies = CASES["4tu"]
    article: Any = copy.deepcopy(bodies["/v2/articles/"])
    article["files"][0]["download_url"] = f"https://data.4tu.nl/file/{UUID}/{UUID}"
    assert item_of(cls, url, {"/v2/articles/": article}).manifest
    article["files"][0]["download_url"] = f"https://data.4tu.nl/file/{UUID.replace('0', '9')}/{UUID}"
    with pytest.raises(PlatformError, match=r"files\[0\]\.download_url: .* is of another article"):
        item_of(cls, url, {"/v2/articles/": article})


def test_a_portal_on_a_host_of_its_own_is_known_by_its_page() -> None:
    url = "https://repository.example.edu/articles/dataset/p/123456"
    asked: list[str] = []

    def ask(question: Question) -> PlatformAnswer:
        asked.append(question.url)
        return answering({"/articles/": made.FIGSHARE})(question)

    helper, request = FigshareHelper(ask=ask), IngestRequest("https://example.edu/go")
    page = Resource(url, 200, {}, b'<script src="https://websitev3-p-eu.figshare.com/a.js"></script>')
    assert not helper.match_request(request, Resource(url, 200, {}, b"<html>"))
    assert helper.match_request(request, page)
    assert helper.process_request(request, page).platform_domain == "repository.example.edu"
    assert asked == ["https://api.figshare.com/v2/articles/123456"]
    both = FigshareHelper(PlatformConfig(hosts=("figshare.com", "repository.example.edu")))
    assert both.base(url) == "https://api.figshare.com/v2"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"files": None}, PlatformRestrictedError),
        ({"is_embargoed": True}, PlatformRestrictedError),
        ({"is_public": False}, PlatformRestrictedError),
        ({"is_confidential": True}, PlatformRestrictedError),
        ({"is_metadata_record": True, "files": []}, EmptyManifest),
        ({"id": 7}, FilesetPlatformScopeError),
        ({"version": 3}, FilesetPlatformScopeError),
    ],
)
def test_what_stands_in_the_way_at_figshare(changes: dict[str, object], problem: type[FilesetProblem]) -> None:
    with pytest.raises(problem):
        item_of(FigshareHelper, CASES["figshare"][1], {"/articles/": {**made.FIGSHARE, **changes}})


def test_an_article_without_the_list_of_its_files_is_under_an_embargo() -> None:
    article = {name: value for name, value in made.FIGSHARE.items() if name != "files"}
    with pytest.raises(PlatformRestrictedError) as caught:
        item_of(FigshareHelper, CASES["figshare"][1], {"/articles/": {**article, "embargo_date": "2999-01-02"}})
    assert caught.value.due == 32472230400


def test_dataverse() -> None:
    found = item_of(*CASES["dataverse"])
    tabular, restricted, embargoed = found.manifest or ()
    assert (tabular.path, tabular.size) == ("data/p.xlsx", 3)
    assert tabular.platform_url == "https://dataverse.harvard.edu/api/access/datafile/11?format=original"
    assert (tabular.extra or {})["archival_name"] == "p.tab"
    assert (restricted.status, restricted.sha1) == ("platform-restricted", "a9993e364706816aba3e25717850c26c9cd0d89d")
    assert embargoed.status == "platform-restricted"
    assert (found.version, found.order, found.archiveorg_item_name) == (
        "2.1", (2, 1), "dataverse.harvard.edu-ABCDEF-v2.1",
    )  # fmt: skip


def test_a_file_of_dataverse_leads_to_its_data_set() -> None:
    file = {"data": {"dataFile": {"id": 11}, "datasetVersion": {"datasetPersistentId": "doi:10.7910/DVN/ABCDEF"}}}
    found = item_of(
        DataverseHelper, f"{DV}/XYZ123".replace("dataset.xhtml", "citation"),
        {"datasets/:persistentId/?persistentId=doi%3A10.7910%2FDVN%2FABCDEF%2F": 404, "/files/": file,
         "/datasets/": made.DATAVERSE},
    )  # fmt: skip
    assert found.platform_id == "doi:10.7910/DVN/ABCDEF"


def test_what_stands_in_the_way_at_dataverse() -> None:
    def asked(url: str = DV, **changes: object) -> None:
        body = copy.deepcopy(made.DATAVERSE)
        body["data"]["latestVersion"].update(changes)  # type: ignore[index]
        item_of(DataverseHelper, url, {"/versions/1.0": 404, "/versions/:latest-published": 404, "/datasets/": body})

    with pytest.raises(PlatformGone):
        asked(versionState="DEACCESSIONED")
    with pytest.raises(PlatformNotFound):
        asked(versionState="DRAFT")
    with pytest.raises(FilesetPlatformScopeError):
        asked(datasetPersistentId="doi:10.7910/DVN/OTHER")
    with pytest.raises(PlatformNotFound):
        asked(f"{DV}&version=1.0")
    asked(f"{DV}&version=2.1")
    latest = made.DATAVERSE["data"]["latestVersion"]  # type: ignore[index]
    with pytest.raises(FilesetPlatformScopeError):
        item_of(DataverseHelper, f"{DV}&version=1.0", {"/versions/1.0": {"data": latest}, "/datasets/": made.DATAVERSE})
    with pytest.raises(PlatformGone):
        item_of(DataverseHelper, DV, {"/datasets/": {"data": {"publicationDate": "2020-01-01"}}})


@pytest.mark.parametrize("where", [":persistentId/versions/1.0?persistentId=doi:10.7910/DVN/ABCDEF", "7/versions/1.0"])
def test_a_url_of_the_api_of_dataverse_names_a_version(where: str) -> None:
    latest: Any = made.DATAVERSE["data"]["latestVersion"]  # type: ignore[index]
    first = {**latest, "versionNumber": 1, "versionMinorNumber": 0, "files": None}
    bodies = {
        "/versions/1.0/files": {"data": latest["files"][:1]}, "/versions/:latest-published/files": {"data": []},
        "/versions/1.0": {"data": first}, "/datasets/": made.DATAVERSE,
    }  # fmt: skip
    found = item_of(DataverseHelper, f"https://dataverse.harvard.edu/api/datasets/{where}", bodies)
    assert (found.version, [file.path for file in found.manifest or ()]) == ("1.0", ["data/p.xlsx"])


def test_files_that_are_restricted_do_not_hide_the_end_of_the_embargo_of_others() -> None:
    latest: Any = made.DATAVERSE["data"]["latestVersion"]  # type: ignore[index]
    closed = {**latest, "files": latest["files"][1:]}
    with pytest.raises(PlatformRestrictedError) as caught:
        item_of(DataverseHelper, DV, {"/datasets/": {"data": {"latestVersion": closed}}})
    assert caught.value.due == 32472144000


def test_a_draft_that_the_token_may_see_does_not_hide_the_published_version() -> None:
    latest = made.DATAVERSE["data"]["latestVersion"]  # type: ignore[index]
    draft = {"versionState": "DRAFT", "datasetPersistentId": latest["datasetPersistentId"], "files": []}
    bodies = {"/versions/:latest-published": {"data": latest}, "/datasets/": {"data": {"latestVersion": draft}}}
    found = item_of(DataverseHelper, DV, bodies)
    assert (found.version, len(found.manifest or ())) == ("2.1", 3)


def test_files_of_dataverse_that_are_kept_for_a_time_only_and_numeric_ids() -> None:
    body = copy.deepcopy(made.DATAVERSE)
    rows: Any = body["data"]["latestVersion"]["files"]  # type: ignore[index]
    rows[0]["retention"] = {"dateUnavailable": "2020-01-01"}
    rows[2]["embargo"] = {"dateAvailable": "2020-01-01"}
    closed, _, free = item_of(DataverseHelper, "https://dataverse.harvard.edu/dataset.xhtml?id=7", {
        "/datasets/7/": body}).manifest or ()  # fmt: skip
    assert (closed.status, free.status) == ("platform-restricted", None)
    with pytest.raises(PlatformRestrictedError, match="no longer available"):
        item_of(DataverseHelper, DV, {"/datasets/": {"data": {"latestVersion": {
            **body["data"]["latestVersion"], "files": rows[:1]}}}})  # type: ignore[index]  # fmt: skip
    assert other_checksum(free) == ("sha512", "0" * 128)
    rows[2]["embargo"] = {"dateAvailable": "2999-01-01"}
    with pytest.raises(PlatformRestrictedError) as caught:
        item_of(DataverseHelper, DV, {"/datasets/": {"data": {"latestVersion": {
            **body["data"]["latestVersion"], "files": rows[2:]}}}})  # type: ignore[index]  # fmt: skip
    assert (caught.value.due, caught.value.platform_id) == (32472144000, "doi:10.7910/DVN/ABCDEF")


def test_archiveorg_leaves_out_its_own_files_only() -> None:
    names = ["refs.bib", "survey_meta.xml", "_config.yml", "Prices_thumb.png", "__ia_thumb.jpg", "prices_reviews.xml"]
    files = [{"name": name, "source": "original", "size": "1"} for name in names]
    found = item_of(ArchiveOrgHelper, CASES["archiveorg"][1], {"/metadata/": {**made.ARCHIVEORG, "files": files}})
    assert [file.path for file in found.manifest or ()] == names[:3]


def test_archiveorg() -> None:
    found = item_of(*CASES["archiveorg"])
    (file,) = found.manifest or ()
    assert (file.path, file.size, file.md5) == ("data/p.csv", 3, MD5)
    assert file.platform_url == "https://archive.org/download/prices/data/p.csv"
    for body, problem in (({}, PlatformNotFound), (b"null", PlatformError), ([], PlatformError),
                          ({"is_dark": True}, PlatformRestrictedError),
                          ({**made.ARCHIVEORG, "is_collection": True}, FilesetPlatformScopeError)):  # fmt: skip
        with pytest.raises(problem):
            item_of(ArchiveOrgHelper, CASES["archiveorg"][1], {"/metadata/": body})
    with pytest.raises(FilesetPlatformScopeError):
        item_of(ArchiveOrgHelper, "https://archive.org/download/prices/data/p.csv", {"/metadata/": made.ARCHIVEORG})


def test_a_collection_of_archiveorg_names_its_items_and_an_account_is_none() -> None:
    items = {"response": {"docs": [{"identifier": "one"}, {"identifier": "two"}]}}
    collection = {**made.ARCHIVEORG, "is_collection": True}
    bodies = {"advancedsearch.php?q=collection%3Aprices&": items, "/metadata/": collection}
    with pytest.raises(FilesetPlatformScopeError, match="not an item: one, two"):
        item_of(ArchiveOrgHelper, CASES["archiveorg"][1], bodies)
    with pytest.raises(FilesetPlatformScopeError, match=r"not an item$"):
        item_of(ArchiveOrgHelper, CASES["archiveorg"][1], {"search.php": b"<html>", "/metadata/": collection})
    with pytest.raises(FilesetPlatformScopeError, match="@prices is an account"):
        item_of(ArchiveOrgHelper, "https://archive.org/details/@prices", {})
    with pytest.raises(FilesetPlatformScopeError, match="a part of an item: prices"):
        item_of(ArchiveOrgHelper, "https://archive.org/stream/prices/p.csv", {})


def test_another_version_of_hal_and_files_of_another_deposit() -> None:
    body: Any = copy.deepcopy(made.HAL["/search/"])
    with pytest.raises(FilesetPlatformScopeError, match="version 1 was asked for, and the answer is of 2"):
        item_of(HalHelper, "https://hal.science/hal-01234567v1", {"/search/": body})
    for url in ("https://shs.hal.science/hal-01234567v2/document", "https://elsewhere.example.org/hal-07654321/p.csv"):
        body["response"]["docs"][0]["files_s"] = [url]
        assert item_of(HalHelper, CASES["hal"][1], {"/search/": body}).manifest
    body["response"]["docs"][0]["files_s"] = ["https://hal.science/hal-07654321/file/p.csv"]
    with pytest.raises(PlatformError, match=r"files_s\[0\]: .* is of another deposit"):
        item_of(HalHelper, CASES["hal"][1], {"/search/": body})


@pytest.mark.parametrize("body", [{"error": {"msg": "no"}}, {"response": {}}, {"response": {"docs": None}}, {}])
def test_an_answer_without_results_does_not_say_that_there_are_none(body: object) -> None:
    with pytest.raises(PlatformError, match=r"^response\.docs: must be a list"):
        item_of(HalHelper, CASES["hal"][1], {"/search/": body})
    with pytest.raises(PlatformError, match=r"^hits\.hits: must be a list"):
        item_of(ZenodoHelper, CASES["zenodo"][1], {"/records/": {"hits": {"hits": None}}})


def test_hostile_urls_of_files_of_hal_take_linear_time() -> None:
    body: Any = copy.deepcopy(made.HAL["/search/"])
    body["response"]["docs"][0]["files_s"] = [f"https://hal.science/{'a' * 7900}/{n}" for n in range(30)]
    began = time.process_time()
    assert len(item_of(HalHelper, CASES["hal"][1], {"/search/": body}).manifest or ()) == 30
    assert time.process_time() - began < 1


def test_annexes_of_hal_are_files_too() -> None:
    body = copy.deepcopy(made.HAL["/search/"])
    main = "https://hal.science/hal-01234567/file/p.csv"
    body["response"]["docs"][0]["fileAnnexes_s"] = [main, main.replace("p.csv", "annex.zip")]  # type: ignore[index]
    files = item_of(HalHelper, CASES["hal"][1], {"/search/": body}).manifest or ()
    assert [file.path for file in files] == ["p.csv", "annex.zip"]


@pytest.mark.parametrize(
    ("name", "part", "count", "where"),
    [
        ("zenodo", "/records/", {"files": {"entries": {}, "count": 1}}, r"files\.count"),
        ("archiveorg", "/metadata/", {"files_count": "5"}, "files_count"),
        ("dryad", "/files", {"total": 2}, "total"),
        ("osf", "/d1/", {"meta": {"total": 2}}, r"meta\.total"),
        ("osf", "/d1/", {"links": {"meta": {"total": 2}}}, r"links\.meta\.total"),
    ],
)
def test_fewer_files_than_there_are_is_an_error(name: str, part: str, count: dict[str, Any], where: str) -> None:
    """A list that was cut must not become a data set that looks complete."""
    cls, url, bodies = CASES[name]
    key = next(key for key in bodies if part in key)
    body: Any = bodies[key]
    with pytest.raises(PlatformError, match=f"^{where}: there are"):
        item_of(cls, url, {key: {**body, **count}, **{other: it for other, it in bodies.items() if other != key}})


def test_folders_of_osf_and_mendeley() -> None:
    (file,) = item_of(*CASES["osf"]).manifest or ()
    assert (file.path, file.md5) == ("d/p.csv", MD5)
    (file,) = item_of(*CASES["mendeley"]).manifest or ()
    assert file.path == "outer/inner/p.csv"


def test_a_download_of_another_project_of_osf_is_an_error() -> None:
    for node in ("y8t6r", "abcde"):
        place = f"files.osf.io/v1/resources/{node}/providers/osfstorage"
        bodies = {**made.OSF, "/d1/": json.loads(json.dumps(made.OSF_FILES).replace("osf.io/download", place))}
        if node == "y8t6r":
            assert item_of(*CASES["osf"][:2], bodies).manifest
        else:
            with pytest.raises(PlatformError, match=r"data\[0\]\.links\.download: .* is of another project"):
                item_of(*CASES["osf"][:2], bodies)


def test_a_data_set_of_mendeley_without_its_files_has_a_list_for_each_directory() -> None:
    data: Any = {**made.MENDELEY["/datasets/"]}  # type: ignore[dict-item]
    (row,) = data.pop("files")
    row = {name: value for name, value in row.items() if name != "folder_id"}
    bodies = {"/files?folder_id=g&version=1": [row], "/files?": [], "/folders/1": made.MENDELEY["/folders/"]}
    found = item_of(*CASES["mendeley"][:2], {**bodies, "/files?folder_id=root&version=1": [row], "/datasets/": data})
    assert [file.path for file in found.manifest or ()] == ["outer/inner/p.csv"]
    found = item_of(*CASES["mendeley"][:2], {"/files?folder_id=root&version=1": [row], **bodies, "/datasets/": data})
    assert [file.path for file in found.manifest or ()] == ["p.csv", "outer/inner/p.csv"]
    bodies["/folders/1"] = [{"id": f"f{number}", "name": "d", "parent_id": None} for number in range(6000)]
    with pytest.raises(PlatformError, match="too many directories"):
        item_of(*CASES["mendeley"][:2], {**bodies, "/datasets/": data})


def test_a_download_of_another_data_set_of_mendeley_is_an_error() -> None:
    body = json.loads(json.dumps(made.MENDELEY["/datasets/"]).replace("public-files/1", "public-files/datasets/zzz/1"))
    with pytest.raises(PlatformError, match=r"files\[0\]\.content_details\.download_url"):
        item_of(MendeleyHelper, CASES["mendeley"][1], {**made.MENDELEY, "/datasets/": body})


def test_bundles_of_dspace_are_read_page_by_page() -> None:
    first = {"_embedded": {"bundles": [{"name": "TEXT"}] * 20}, "_links": {"next": {
        "href": "https://econ.example.org/server/api/core/items/u/bundles?page=1"}}}  # fmt: skip
    bodies = {"bundles?page=1": made.DSPACE7["/bundles"], **made.DSPACE7, "/bundles": first}
    assert [file.path for file in item_of(*CASES["dspace7"][:2], bodies).manifest or ()] == ["p.csv"]


def test_a_list_of_dspace_that_is_cut_is_an_error() -> None:
    listed: Any = made.DSPACE7["/bitstreams"]
    with pytest.raises(PlatformError, match="there are 2 files, but 1 are listed"):
        item_of(*CASES["dspace7"][:2], {**made.DSPACE7, "/bitstreams": {**listed, "page": {"totalElements": 2}}})


def test_files_of_dryad_that_are_not_to_be_had() -> None:
    def asked(row: dict[str, object] | None = None, **changes: object) -> FilesetPlatformItem:
        data: Any = {**made.DRYAD["/datasets/"], **changes}  # type: ignore[dict-item]
        listed: Any = copy.deepcopy(made.DRYAD["/versions/9/files"])
        listed["_embedded"]["stash:files"][0].update(row or {})
        return item_of(*CASES["dryad"][:2], {"/versions/9/files": listed, "/datasets/": data})

    (file,) = asked({"_links": {"self": {"href": "/api/v2/files/5"}}}).manifest or ()
    assert (file.status, file.platform_url) == ("platform-restricted", None)
    whole = {"stash:version": {"href": "/api/v2/versions/9"}, "stash:download": {"href": "/api/v2/datasets/7/download"}}
    assert asked(_links=whole).web_bundle_url == "https://datadryad.org/api/v2/datasets/7/download"
    with pytest.raises(PlatformRestrictedError, match="embargoed until 2999-01-01") as caught:
        asked(curationStatus="Embargoed", publicationDate="2999-01-01")
    assert caught.value.due == 32472144000
    for state in ("Withdrawn", "Retracted"):
        with pytest.raises(PlatformGone):
            asked(curationStatus=state)


def test_a_collection_of_dspace_names_its_items() -> None:
    found = {"_embedded": {"searchResult": {"_embedded": {"objects": [
        {"_embedded": {"indexableObject": {"uuid": "u", "handle": "10419/8"}}}]}}}}  # fmt: skip
    collection = {"uuid": "c", "type": "collection", "handle": "10419/7"}
    with pytest.raises(FilesetPlatformScopeError, match="collection, not an item: 10419/8"):
        item_of(DspaceHelper, CASES["dspace6"][1], {"/discover/": found, "/pid/find": collection})


@pytest.mark.parametrize("kind", ["collections", "communities"])
def test_a_collection_of_dspace_by_its_own_url(kind: str) -> None:
    found = {"_embedded": {"searchResult": {"_embedded": {"objects": [
        {"_embedded": {"indexableObject": {"uuid": "u", "handle": "10419/8"}}}]}}}}  # fmt: skip
    body = {"uuid": UUID, "type": kind[:-1], "handle": "10419/7"}
    bodies = {"/discover/": found, f"/core/{kind}": body}
    with pytest.raises(FilesetPlatformScopeError, match="not an item: 10419/8"):
        item_of(DspaceHelper, f"https://ds.example.org/{kind}/{UUID}/browse", bodies)
    inside = {**body, "items": [{"handle": "10419/9"}]}
    with pytest.raises(FilesetPlatformScopeError, match="not an item: 10419/9"):
        item_of(DspaceHelper, f"https://ds.example.org/{kind}/{UUID}", {f"/rest/{kind}/{UUID}": inside})


def test_an_item_of_an_older_dspace_by_its_uuid() -> None:
    item: Any = made.DSPACE6["/rest/handle/"]
    found = item_of(DspaceHelper, f"https://ds.example.org/rest/items/{UUID}", {"/rest/items/": {**item, "uuid": UUID}})
    assert (found.platform_id, [file.path for file in found.manifest or ()]) == ("10419/7", ["p.csv"])


def test_a_collection_of_an_older_dspace_names_what_is_in_it() -> None:
    community: dict[str, object] = {"id": 7, "type": "community", "handle": "10419/7", "name": "Prices"}
    inside = {**community, "collections": [{"handle": "10419/8"}], "subcommunities": [{"handle": None, "uuid": "u"}]}
    bodies = {"expand=items,": inside, "/rest/handle/": community}
    with pytest.raises(FilesetPlatformScopeError, match="7 is a community, not an item: 10419/8, u"):
        item_of(DspaceHelper, CASES["dspace6"][1], bodies)
    item: Any = copy.deepcopy(made.DSPACE6["/rest/handle/"])
    for link in ("/rest/bitstreams/1/retrieve", "/bitstreams/1/retrieve", "https://econ.example.org/rest/bitstreams/1/retrieve"):
        item["bitstreams"][0]["retrieveLink"] = link
        (file,) = item_of(DspaceHelper, CASES["dspace6"][1], {"/rest/handle/": item}).manifest or ()
        assert file.platform_url == "https://econ.example.org/rest/bitstreams/1/retrieve"
    withdrawn = {**made.DSPACE6["/rest/handle/"], "withdrawn": "true"}  # type: ignore[dict-item]
    with pytest.raises(PlatformGone):
        item_of(DspaceHelper, CASES["dspace6"][1], {"/rest/handle/": withdrawn})


@pytest.mark.parametrize("name", ["dryad", "dspace7", "osf"])
@pytest.mark.parametrize("turn", [lambda count: "?page=1", lambda count: f"?page={count}"])
def test_a_list_without_an_end_is_an_error(name: str, turn: Callable[[int], str]) -> None:
    cls, url, bodies = CASES[name]
    asked = itertools.count()

    def ask(question: Question) -> PlatformAnswer:
        answer = answering(bodies)(question)
        body = json.loads(answer.body)
        there = question.url.partition("?")[0] + turn(next(asked))
        if name == "osf":
            body = {"data": [], "links": {"next": there}} if "/files/" in there else body
        elif any(part in there for part in ("/files", "/bitstreams")):
            body = {"_links": {"next": {"href": there}}}
        return PlatformAnswer(question.url, answer.status, {}, json.dumps(body).encode())

    with pytest.raises(PlatformError, match="does not come to an end"):
        cls(ask=ask).process_request(IngestRequest(url))


@pytest.mark.parametrize("name", ["dryad", "dspace7", "osf"])
def test_a_list_that_changes_while_it_is_read_is_an_error(name: str) -> None:
    """A new first file moves the last one of the first page to the second, and is in neither."""
    cls, url, bodies = CASES[name]
    moved: list[str] = []

    def ask(question: Question) -> PlatformAnswer:
        answer = answering(bodies)(question)
        body = json.loads(answer.body)
        there = question.url
        if any(part in there for part in ("/files", "/bitstreams")) and not moved:
            moved.append(there)
            body.setdefault("links" if name == "osf" else "_links", {})["next"] = (
                f"{there}#2" if name == "osf" else {"href": f"{there}#2"}
            )
        return PlatformAnswer(question.url, answer.status, {}, json.dumps(body).encode())

    with pytest.raises(PlatformError, match=r"the list (has changed while|of directories does not)"):
        cls(ask=ask).process_request(IngestRequest(url))
    assert moved


def test_a_folder_in_itself_is_an_error() -> None:
    with pytest.raises(PlatformError, match="does not come to an end"):
        item_of(OsfHelper, CASES["osf"][1], {**made.OSF, "/d1/": made.OSF_FOLDER})


@pytest.mark.parametrize(
    ("name", "part"), [("osf", "/d1/"), ("dryad", "/versions/9/files"), ("dspace7", "/bitstreams")]
)
def test_a_list_of_files_that_is_gone_is_not_the_data_set(name: str, part: str) -> None:
    cls, url, bodies = CASES[name]
    with pytest.raises(PlatformHttpError, match="HTTP 410"):
        item_of(cls, url, {**bodies, part: 410})


def test_a_folder_on_another_host_is_not_asked_for() -> None:
    body = copy.deepcopy(made.OSF_FOLDER)
    body["data"][0]["relationships"]["files"]["links"]["related"]["href"] = "https://evil.example.org/"  # type: ignore[index]
    with pytest.raises(PlatformError, match=r"data\[0\]\.relationships"):
        item_of(OsfHelper, CASES["osf"][1], {**made.OSF, "files/osfstorage": body})


PAGE = b"""<html><head><meta name="DC.identifier" content="10.3886/E132081V1">
<meta name="DC.title" content="Data and Code">
<meta name="DC.date" content="2022-06-15"></head></html>"""
PROJECT = "https://www.openicpsr.org/openicpsr/project/132081/version/V1/view"


def test_openicpsr_needs_a_session() -> None:
    with pytest.raises(PlatformRestrictedError, match="Data and Code") as caught:
        item_of(OpenIcpsrHelper, PROJECT, {"/view": PAGE})
    assert caught.value.item is not None
    assert (caught.value.item.platform_id, caught.value.item.title) == ("132081V1", "Data and Code")
    helper = OpenIcpsrHelper(PlatformConfig(token="COOKIE"), ask=answering({"/view": PAGE}))
    request = {"base_url": PROJECT, "ingest_type": "dataset", "ext_ids": None, "link_source": "doi"}
    assert helper.match_request(request)
    found = helper.process_request(request)
    assert found.bundle_only
    assert "/download/project?dirPath=/openicpsr/132081/fcr:versions/V1" in (found.web_bundle_url or "")
    assert (found.platform_id, found.work_id, found.published) == ("132081V1", "132081", 1655251200)
    with pytest.raises(FilesetPlatformScopeError):
        item_of(OpenIcpsrHelper, PROJECT.replace("132081", "7"), {"/view": PAGE})
    with pytest.raises(PlatformError, match=r"DC\.identifier"):
        item_of(OpenIcpsrHelper, PROJECT, {"/view": b"<html>log in</html>"})


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("This project has been withdrawn at the request of its depositor.", PlatformGone),
        ("The data set <b>7</b> is gone: the version that you requested is no longer available", PlatformGone),
        ("Your session has been removed, log in", PlatformError),
    ],
)
def test_a_page_of_openicpsr_may_be_a_tombstone(said: str, problem: type[FilesetProblem]) -> None:
    with pytest.raises(problem) as caught:
        item_of(OpenIcpsrHelper, PROJECT, {"/view": f"<html><p>{said}</html>".encode()})
    assert type(caught.value) is problem


def test_a_project_of_openicpsr_without_a_version_is_its_only_one() -> None:
    helper = OpenIcpsrHelper(PlatformConfig(token="COOKIE"))
    whole, listed = PROJECT.partition("/version")[0], '<a href="/openicpsr/project/132081/version/{}/view">'
    pages = {f"/{one}/view": PAGE.replace(b"V1", one.encode()) for one in ("V1", "V2", "V10")}

    def found(*, follow: bool = False) -> FilesetPlatformItem:
        asking, ask = helper.questions(IngestRequest(whole), None, follow=follow), answering(pages)
        try:
            question = next(asking)
            while True:
                question = asking.send(ask(question))
        except StopIteration as done:
            item: FilesetPlatformItem = done.value
            return item

    pages["/V1/view"] += listed.format("V1").encode()
    assert found().platform_id == "132081V1"
    pages["/V1/view"] += (listed.format("V10") + listed.format("V2")).encode()
    with pytest.raises(FilesetPlatformScopeError, match=f"{whole}/version/V10/view"):
        found()
    newest = found(follow=True)
    assert (newest.platform_id, newest.version) == ("132081V10", "V10")
    assert "/version/V10/download/project" in (newest.web_bundle_url or "")


# -- the last resort ------------------------------------------------------------------------------


def page(body: bytes = b"", **headers: str) -> Resource:
    return Resource("https://data.example.org/7/", 200, headers, body)


def generic(resource: Resource, bodies: Mapping[str, object] | None = None) -> FilesetPlatformItem:
    return item_of(GenericHelper, "https://data.example.org/7/", bodies or {}, resource)


def test_signposting_in_a_header_and_in_a_link_set() -> None:
    header = '<p.csv>; rel="item"; type="text/csv", <https://x.example.org/q.zip>; rel=item; length=5'
    header += f", </r>; rel=item; length={'9' * 20}"
    found = generic(page(link=header))
    assert [(file.path, file.size, file.mimetype) for file in found.manifest or ()] == [
        ("p.csv", None, "text/csv"), ("q.zip", 5, None), ("r", None, None),
    ]  # fmt: skip
    header = '<https://data.example.org/set>; rel="linkset"; type="application/linkset+json"'
    linkset = {"linkset": [{"anchor": "https://data.example.org/7/", "item": [{"href": "https://h/p%20q.csv"}]}]}
    assert [file.path for file in generic(page(link=header), {"/set": linkset}).manifest or ()] == ["p q.csv"]


def test_the_name_of_a_file_may_be_before_the_end_of_its_url() -> None:
    urls = ["/files/p%20q.csv/content", "/files/r.csv/download", "/bitstreams/u/download", "/content", "https://h/"]
    header = ", ".join(f"<{url}>; rel=item" for url in urls)
    names = [file.path for file in generic(page(link=header)).manifest or ()]
    assert names == ["p q.csv", "r.csv", "download", "content", "h"]


def test_link_sets_and_descriptions_are_tried_in_turn() -> None:
    sets = ", ".join(f'<{url}>; rel="linkset"' for url in ("/none", "/broken", "/of-another", "/set", "/again"))
    item = {"anchor": "https://data.example.org/7/", "item": [{"href": "https://h/p"}]}
    bodies: dict[str, object] = {
        "/none": 404, "/broken": {"linkset": 5}, "/of-another": {"linkset": [{**item, "anchor": "https://other"}]},
        "/set": {"linkset": [item]}, "/again": {"linkset": [item]},
    }  # fmt: skip
    assert [file.path for file in generic(page(link=sets), bodies).manifest or ()] == ["p"]
    with pytest.raises(FilesetProblem) as caught:
        generic(page(link=sets), {**bodies, "/set": {}, "/again": 404})
    assert "linkset" in str(caught.value), "the message names what is broken"
    described = "".join(
        f'<link rel="describedby" type="application/ld+json" href="{url}">' for url in ("/none", "/broken", "/d", "/e")
    )
    data = {"@type": "Dataset", "name": "P", "distribution": {"contentUrl": "q"}}
    files = {"/none": 404, "/broken": {"@type": "Dataset", "distribution": {"contentUrl": 5}}, "/d": data}
    assert [file.path for file in generic(page(described.encode()), files).manifest or ()] == ["q"]


def test_links_of_another_resource_do_not_describe_the_page() -> None:
    item, anchors = {"href": "https://h/p"}, ["https://data.example.org/8/", "urn:x", "http://[", "", 'doi:10.1/"x"']
    contexts: list[dict[str, object]] = [{"anchor": one, "item": [{"href": "https://h/other"}]} for one in anchors]
    for own in ("http://www.data.example.org/7", "../7/", None):
        contexts.append({"anchor": own, "item": [item]})
        header = '<https://data.example.org/set>; rel="linkset"'
        found = generic(page(link=header), {"/set": {"linkset": contexts}})
        assert {file.path for file in found.manifest or ()} == {"p"}
    header = '<q>; rel=item, <p>; rel=item; anchor="../7/", <o>; rel=item; anchor="../8/", <n>; rel=item; anchor="http://["'
    assert [file.path for file in generic(page(link=header)).manifest or ()] == ["q", "p"]


def test_schema_org_and_croissant() -> None:
    data = {"@context": "https://schema.org/", "@type": "Dataset", "name": "Prices", "distribution": [
        {"@type": "DataDownload", "contentUrl": "files/p.csv", "encodingFormat": "text/csv", "contentSize": "2.5 MB"},
        {"@type": "cr:FileObject", "name": "q.csv", "contentUrl": "https://h/q", "contentSize": "12 B",
         "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"@type": "cr:FileSet", "includes": "*.csv"}]}  # fmt: skip
    script = f'<html><script type="application/ld+json">{json.dumps({"@graph": [data]})}</script></html>'.encode()
    first, second = generic(page(script)).manifest or ()
    assert (first.path, first.size, first.platform_url) == ("p.csv", None, "https://data.example.org/7/files/p.csv")
    assert (second.path, second.size, (second.sha256 or "")[:6]) == ("q.csv", 12, "ba7816")
    about = json.dumps({"@graph": [{"@type": "WebSite"}, {"@type": "WebPage", "mainEntity": data}]})
    assert generic(page(f'<script type="application/ld+json">{about}</script>'.encode())).title == "Prices"


def test_a_distribution_may_be_a_mere_url() -> None:
    data = {"@type": "Dataset", "name": "P", "distribution": ["https://h/p.csv", "on request", "#q", 5]}
    script = f'<script type="application/ld+json">{json.dumps(data)}</script>'
    (file,) = generic(page(script.encode())).manifest or ()
    assert (file.path, file.platform_url) == ("p.csv", "https://h/p.csv")


def test_a_repository_that_croissant_names_is_no_file() -> None:
    data = {"@type": "sc:Dataset", "name": "Prices", "distribution": [
        {"@type": "cr:FileObject", "@id": "repo", "name": "repo", "contentUrl": "https://h/tree/main",
         "encodingFormat": "git+https", "sha256": "https://h/why"},
        {"@type": "cr:FileSet", "@id": "all", "containedIn": {"@id": "repo"}, "includes": "*.parquet"},
        {"@type": "cr:FileObject", "@id": "p", "contentUrl": "/p.csv"}]}  # fmt: skip
    script = f"<script type=\"application/ld+json\">{json.dumps(data)}</script>"
    repository, file = generic(page(script.encode())).manifest or ()
    assert (repository.status, repository.platform_url) == ("skipped-link-only", None)
    assert (repository.extra, file.path) == ({"link": "https://h/tree/main"}, "p.csv")


@pytest.mark.parametrize("prefix", ["schema:", "sdo:", "sc:", "http://schema.org/", ""])
def test_a_graph_of_json_ld_with_prefixes_and_references(prefix: str) -> None:
    files = [{"@id": f"#{n}", "@type": f"{prefix}DataDownload", f"{prefix}contentUrl": {"@id": f"https://h/{n}.csv"}}
             for n in range(3)]  # fmt: skip
    data = {"@type": f"{prefix}Dataset", f"{prefix}name": "Prices",
            f"{prefix}distribution": [{"@id": "#0"}, {"@id": "#2"}, {"@id": "#3"}]}  # fmt: skip
    graph = json.dumps({"@graph": [*files, data]})
    found = generic(page(f'<script type="application/ld+json">{graph}</script>'.encode()))
    assert (found.title, [file.path for file in found.manifest or ()]) == ("Prices", ["0.csv", "2.csv"])


@pytest.mark.parametrize(
    "form", ["<!--{}-->", "<![CDATA[{}]]>", "\n//<![CDATA[\n{}\n//]]>\n", "/*<![CDATA[*/{}/*]]>*/", "<!--\n{}\n//-->"]
)
def test_json_ld_hidden_in_a_comment(form: str) -> None:
    data = {"@type": "Dataset", "name": "-->Prices]]>", "distribution": {"contentUrl": "p.csv"}}
    script = form.replace("{}", json.dumps(data))
    found = generic(page(f'<script type="application/ld+json">{script}</script>'.encode()))
    assert (found.title, [file.path for file in found.manifest or ()]) == ("-->Prices]]>", ["p.csv"])


def test_items_of_json_ld_are_in_memory_once() -> None:
    count = 100_000
    tracemalloc.start()
    try:
        found = list(pages.objects_of(b"[" + b"1," * count + b'{"@graph": [{"name": "a"}]}, {"name": "b"}]'))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [one["name"].raw for one in found] == [None, "a", "b"]
    assert peak < 40 * count


def test_a_catalogue_names_its_data_sets() -> None:
    listed = [{"@type": "Dataset", "url": "https://h/1"}, {"@type": "Dataset", "@id": "https://h/2"}, {"name": "Three"}]
    data = json.dumps({"@type": "schema:DataCatalog", "schema:dataset": listed})
    with pytest.raises(FilesetPlatformScopeError, match="https://h/1, https://h/2, Three"):
        generic(page(f'<script type="application/ld+json">{data}</script>'.encode()))


def test_a_data_set_of_parts_names_those_that_are_data_sets() -> None:
    parts = [{"@type": "Dataset", "url": "https://h/1"}, {"@id": "https://h/2"}, {"@type": "Person", "name": "N"}, "x"]
    whole, second = {"@type": "Dataset", "name": "P", "hasPart": parts}, {"@type": "Dataset", "@id": "https://h/2"}
    data = json.dumps([whole, second])
    resource = page(f'<script type="application/ld+json">{data}</script>'.encode())
    with pytest.raises(FilesetPlatformScopeError, match=r": https://h/1, https://h/2$"):
        generic(resource)
    data = json.dumps({**whole, "distribution": {"contentUrl": "p.csv"}})
    assert len(generic(page(f'<script type="application/ld+json">{data}</script>'.encode())).manifest or ()) == 1


@pytest.mark.parametrize(
    "own",
    [
        {"@id": "https://data.example.org/7#data"}, {"url": "."}, {"identifier": "DOI:10.5072/X7"},
        {"identifier": [5, {"@type": "PropertyValue", "propertyID": "doi", "value": "10.5072/x7"}]},
        {"sameAs": ["https://h/7", {"@id": "https://doi.org/10.5072/x7"}]},
    ],
)  # fmt: skip
def test_of_several_data_sets_on_a_page_the_one_that_was_asked_for(own: dict[str, Any]) -> None:
    other = {"@type": "Dataset", "@id": "https://h/8", "name": "Q", "distribution": {"contentUrl": "q.csv"}}
    one = {"@type": "Dataset", "name": "P", "distribution": {"contentUrl": "p.csv"}}
    request = IngestRequest("https://data.example.org/7/", ext_ids={"doi": "10.5072/X7"})

    def found(*data: Any) -> FilesetPlatformItem:
        script = f'<script type="application/ld+json">{json.dumps(data)}</script>'
        return GenericHelper(ask=lambda question: PlatformAnswer(question.url, 404)).process_request(
            request, page(script.encode())
        )

    assert found(other, {**one, **own}).title == "P"
    assert found({**other, "@id": "https://data.example.org/7#q"}, {**one, "url": "."}).title == "P", "it says so"
    with pytest.raises(FilesetPlatformScopeError, match="https://h/8, P"):
        found(other, one)
    with pytest.raises(FilesetPlatformScopeError, match=r"https://h/8$"):
        found(other, {**one, "url": 7})
    assert found(one, one).title == "P", "the same twice"
    assert found({**other, "isPartOf": {"@id": "p"}}, {**one, "@id": "p"}).title == "P"
    assert found(other, {**one, "hasPart": [{"@id": "https://h/8"}]}).title == "P"


def test_no_more_than_a_thousand_data_sets_of_a_page_are_looked_at() -> None:
    data = [{"@type": "Dataset", "@id": f"https://h/{n}"} for n in range(1000)]
    own = {"@type": "Dataset", "url": "https://data.example.org/7/", "distribution": {"contentUrl": "p"}}
    for place, names in ((999, ["p"]), (1000, None)):
        script = json.dumps([*data[:place], own])
        resource = page(f'<script type="application/ld+json">{script}</script>'.encode())
        if names is None:
            with pytest.raises(FilesetPlatformScopeError, match="https://h/0, https://h/1, "):
                generic(resource)
        else:
            assert [file.path for file in generic(resource).manifest or ()] == names


def test_links_to_files_need_no_description_that_is_the_only_one() -> None:
    data = json.dumps([{"@type": "Dataset", "name": name, "@id": [name]} for name in "PQ"])
    resource = page(f'<title>T</title><script type="application/ld+json">{data}</script>'.encode(), link="<p>;rel=item")
    assert generic(resource).title == "T"


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-8", "koi8-r"])
def test_a_page_may_have_another_charset(charset: str) -> None:
    name = "Цены" if charset == "koi8-r" else "Prix du blé"
    data = json.dumps({"@type": "Dataset", "name": name, "distribution": {"contentUrl": "p.csv"}}, ensure_ascii=False)
    script = f'<script type="application/ld+json">{data}</script>'
    stated = f'<meta charset="{charset}">'
    for meta, headers in ((stated, {}), ("", {"content-type": f"text/html; charset={charset}"})):
        assert generic(page(f"<html>{meta}{script}</html>".encode(charset), **headers)).title == name


@pytest.mark.parametrize("charset", ["", "utf-16", "utf-7", "rot13"])
def test_a_page_of_utf8_with_a_damaged_byte(charset: str) -> None:
    meta = f'<meta charset="{charset}">' if charset else ""
    data = '{"@type": "Dataset", "name": "Prix du blé", "distribution": {"contentUrl": "https://h/blé.csv"}}'
    found = generic(page(f'{meta}<script type="application/ld+json">{data}</script>'.encode() + b"\xe9"))
    assert (found.title, [file.path for file in found.manifest or ()]) == ("Prix du blé", ["blé.csv"])


def test_a_page_in_utf16_and_one_in_a_charset_that_only_its_header_states() -> None:
    assert pages.Page("<title>Prix du blé</title>".encode("utf-16")).title() == "Prix du blé"
    meta = '<meta name="citation_title" content="Prix du blé">'.encode("latin-1")
    assert html_biblio(meta, {"content-type": "text/html; charset=latin1"}) == {"title": "Prix du blé"}


def test_json_ld_with_raw_line_ends_in_its_texts() -> None:
    script = '{"@type": "Dataset", "name": "Prices\nof\twheat", "distribution": {"contentUrl": "p.csv"}}'
    found = generic(page(f'<script type="application/ld+json">{script}</script>'.encode()))
    assert (found.title, [file.path for file in found.manifest or ()]) == ("Prices\nof\twheat", ["p.csv"])


def test_values_of_json_ld_in_their_other_forms_relative_to_the_base_of_the_page() -> None:
    data = {"@type": "schema:Dataset", "name": [{"@value": "Prices", "@language": "en"}], "version": {"@value": 2},
            "distribution": {"contentUrl": {"@id": "p.csv"}, "name": [], "contentSize": {"@type": "QuantitativeValue"},
                             "encodingFormat": ["text/csv", "https://h/csv"]}}  # fmt: skip
    body = json.dumps({"@type": "WebPage", "mainEntity": data})
    script = f'<base href="/files/"><script type="application/ld+json; charset=utf-8">{body}</script>'
    broken = '<link rel="linkset" href="/none"><link rel="describedby" type="application/ld+json" href="/none">'
    found = generic(page(f"{script}{broken}".encode()), {"/none": 404})
    assert (found.title, found.version) == ("Prices", "2")
    assert [(file.path, file.platform_url, file.mimetype) for file in found.manifest or ()] == [
        ("p.csv", "https://data.example.org/files/p.csv", "text/csv"),
    ]  # fmt: skip
    with pytest.raises(FilesetProblem) as caught:
        generic(page(broken.encode()), {"/none": 404})
    assert caught.value.status == "no-platform-match"


def test_link_elements_text_link_sets_and_descriptions_in_other_files() -> None:
    found = generic(page(b'<link rel="item" href="/p.csv" type="text/csv"><link rel="stylesheet" href="x.css">'))
    assert [(file.platform_url, file.mimetype) for file in found.manifest or ()] == [
        ("https://data.example.org/p.csv", "text/csv"),
    ]  # fmt: skip
    text = b'<https://h/p.csv>\n ; rel="item"\n ; anchor="https://data.example.org/7/",\n<https://h/q.csv>; rel="item"'

    def ask(question: Question) -> PlatformAnswer:
        return PlatformAnswer(question.url, 200, {"content-type": "application/linkset"}, text)

    resource = page(link='<https://data.example.org/set>; rel="linkset"; type="application/linkset"')
    found = GenericHelper(ask=ask).process_request(IngestRequest("https://data.example.org/7/"), resource)
    assert [file.path for file in found.manifest or ()] == ["p.csv", "q.csv"]
    data = {"@graph": [{"@type": "Dataset", "name": "P", "distribution": [
        {"name": "whole.zip", "contentUrl": "whole.zip"},
        {"name": "part", "contentUrl": "p.csv", "containedIn": {"@id": "whole.zip"}}]}]}  # fmt: skip
    found = generic(page(b'<link rel="describedby" href="/d/m.json" type="application/ld+json">'), {"/d/m.json": data})
    assert [file.platform_url for file in found.manifest or ()] == ["https://data.example.org/d/whole.zip"]


def test_json_ld_of_a_page_may_be_beside_it() -> None:
    data = {"@type": "Dataset", "name": "P", "distribution": {"contentUrl": "p.csv"}}
    typed = b'<link rel="alternate" type="application/ld+json" href="/d/m.json">'
    others = b'<link rel="alternate" hreflang="de" href="/de"><link rel="alternate" type="text/turtle" href="/r">'
    found = generic(page(others + typed), {"/d/m.json": data, "/de": data, "/r": data})
    assert [file.platform_url for file in found.manifest or ()] == ["https://data.example.org/d/p.csv"]
    with pytest.raises(NoPlatformMatch):
        generic(page(others), {"/de": data, "/r": data})


@pytest.mark.parametrize(
    "body", [b"", b"<html></html>", b'<script type="application/ld+json">{]</script>', b"\0\xff" * 50]
)
def test_a_page_that_says_nothing_is_no_platform(body: bytes) -> None:
    with pytest.raises(FilesetProblem) as caught:
        generic(page(body))
    assert caught.value.status == "no-platform-match"


def test_broken_links_are_left_out() -> None:
    header = '<<>>;;, <a>; rel="item, <b>; rel=item, <http://[>; rel=item, ' + '<x>; rel="item"' * 3
    assert all(link.url for link in links(header, "https://h/"))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ('; type="application/ld+json;profile=\\"https://h/\\""', 'application/ld+json;profile="https://h/"'),
        ('; title="a \\"b\\", c; d"; type=text/csv', "text/csv"),
        ("; md5=900150983cd24fb0d6963f7d28e17f72; x_y=1; type=text/csv", "text/csv"),
        (";; ; type=text/csv ;", "text/csv"),
    ],
)
def test_a_link_may_have_any_parameter(given: str, kind: str) -> None:
    found = list(links(f"<p>; rel=item{given}, <q>; rel=item", "https://h/"))
    assert [(link.url, link.relations) for link in found] == [(f"https://h/{name}", {"item"}) for name in "pq"]
    assert found[0].parameters["type"] == kind


def test_the_types_of_link_sets_and_descriptions_may_have_parameters() -> None:
    data = {"@type": "Dataset", "name": "P", "distribution": {"contentUrl": "p.csv"}}
    link = "<link rel='describedby' type='application/ld+json; profile=\"https://h/\"' href='/d'>"
    assert [file.path for file in generic(page(link.encode()), {"/d": data}).manifest or ()] == ["p.csv"]
    item = {"linkset": [{"anchor": "https://data.example.org/7/", "item": [{"href": "https://h/q"}]}]}
    header = '</set>; rel="linkset"; type="application/linkset+json; profile=x"'
    assert [file.path for file in generic(page(link=header), {"/set": item}).manifest or ()] == ["q"]


@pytest.mark.parametrize("kind", ["application/ld+json", "application/json; charset=utf-8", "text/xml"])
def test_a_link_to_a_description_may_not_say_its_type(kind: str) -> None:
    data = b'{"@type": "Dataset", "name": "P", "distribution": {"contentUrl": "p.csv"}}'
    body = b"<x/>" if kind == "text/xml" else data
    helper = GenericHelper(ask=lambda question: PlatformAnswer(question.url, 200, {"content-type": kind}, body))
    request, resource = IngestRequest("https://data.example.org/7/"), page(link='</d>; rel="describedby"')
    if body == data:
        assert [file.path for file in helper.process_request(request, resource).manifest or ()] == ["p.csv"]
    else:
        with pytest.raises(FilesetProblem) as caught:
            helper.process_request(request, resource)
        assert caught.value.status == "no-platform-match"


def test_links_to_descriptions_that_do_not_say_their_type_are_asked_last() -> None:
    others = ["mailto:a@b", "ftp://x.example.org/d", "/dead", *(f"/h{number}" for number in range(6))]
    header = "".join(f"<{one}>; rel=describedby, " for one in others)
    data = {"@type": "Dataset", "name": "P", "distribution": {"contentUrl": "p.csv"}}
    found = generic(page(link=f'{header}</d>; rel=describedby; type="application/ld+json"'), {"/d": data})
    assert [file.path for file in found.manifest or ()] == ["p.csv"]


def test_a_description_with_another_profile_is_no_json_ld() -> None:
    answer = PlatformAnswer("https://h/d", 200, {"content-type": "text/xml"}, b"<mets/>")
    helper, resource = GenericHelper(ask=lambda question: answer), page(link='</d>; rel=describedby; profile="METS"')
    with pytest.raises(FilesetProblem) as caught:
        helper.process_request(IngestRequest("https://data.example.org/7/"), resource)
    assert caught.value.status == "no-platform-match"


@pytest.mark.parametrize(
    "piece", ["<", "<a", "<a>", "; a ", " ", "<a>; a=<a>", '<a>; a="', "<a>;a=b ", ";", "=", '"', "<a>;a ; ", "<a> ",
              "; ", '\\"', '<a>;a="\\', "<a>;;a=b"]
)
def test_hostile_links_take_linear_time(piece: str) -> None:
    began = time.process_time()
    for start in ("", "<a>", "<a>;a", '<a>;a="'):
        assert list(links(start + piece * (120_000 // len(piece)) + "!", "https://h/")) is not None
    size = "1" + piece * (90_000 // len(piece)) + "!"
    data = {"@type": "Dataset", "distribution": [{"contentUrl": "/p", "contentSize": size}]}
    generic(page(f'<script type="application/ld+json">{json.dumps(data)}</script>'.encode()))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"id": "cc-by-4.0"}, "cc-by-4.0"), ({"name": "CC0", "uri": "http://h/0"}, "http://h/0"),
        ("http://h/0", "http://h/0"),
        ([{"id": "mit", "title": {"en": "MIT"}}, "x"], "mit"),
        ("NONE", None), (None, None), ([], None), ({"id": 7}, None),
    ],
)  # fmt: skip
def test_a_licence_in_any_form(said: object, found: str | None) -> None:
    assert license_of(JsonValue(said)) == found
    item = item_of(ZenodoHelper, "https://zenodo.org/records/7", {
        "/records/7": {**made.ZENODO, "metadata": {**made.ZENODO["metadata"], "license": said}}  # type: ignore[dict-item]
    })  # fmt: skip
    assert (item.archiveorg_item_meta or {}).get("license") == found


ATTRIBUTES = st.sampled_from(("name", "content", "rel", "href", "type", "profile"))


@given(st.sampled_from(("meta", "link")), ATTRIBUTES, st.sampled_from(("a", "item ", "&amp;", "/", "a=")))
@settings(max_examples=50, deadline=None)
def test_an_element_with_an_endless_attribute_is_left_out(tag: str, attribute: str, piece: str) -> None:
    """Nothing reads more of a page than its parser, which does so once, whatever is in it."""
    others = {"name": "citation_title", "content": "Prices", "rel": "item", "href": "/p.csv"}
    element = " ".join([tag, *(f'{name}="{value}"' for name, value in {**others, attribute: piece * 10**5}.items())])
    body = f'<title>Prices</title><{element}><link rel="item" href="/q.csv">'.encode()
    with mock.patch.object(pages.html, "document_fromstring", wraps=pages.html.document_fromstring) as parsing:
        files = generic(page(body)).manifest or []
        found = pages.Page(body)
    assert parsing.call_count == 2
    is_read = {"meta": ("name", "content"), "link": ("rel", "href", "type", "profile")}[tag]
    whole = attribute not in is_read
    assert [file.path for file in files] == ["p.csv"] * (whole and tag == "link") + ["q.csv"]
    assert len(list(found.meta())) == (whole and tag == "meta")


# -- matching -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://zenodo.org/record/7", "zenodo"),
        ("https://zenodo.org/doi/10.5281/zenodo.7", "zenodo"),
        ("https://figshare.com/articles/dataset/A_b/123456", "figshare"),
        ("https://springernature.figshare.com/articles/figure/A/123456/2", "figshare"),
        ("https://data.4tu.nl/articles/dataset/A/12345678", "4tu"),
        ("https://any.example.org/dataset.xhtml?persistentId=hdl:1902.1/21929", "dataverse"),
        ("https://archive.org/details/prices", "archiveorg"),
        ("https://osf.io/y8t6r/", "osf"),
        ("https://datadryad.org/stash/dataset/doi:10.5061/dryad.abc", "dryad"),
        ("https://data.mendeley.com/datasets/abc123/1", "mendeley"),
        (PROJECT, "openicpsr"),
        ("https://hal.science/hal-01234567", "hal"),
        ("https://halshs.archives-ouvertes.fr/halshs-01234567v1/document", "hal"),
        ("https://hal.inria.fr/hal-01234567", "hal"),
        ("https://example.org/data", None),
    ],
)
def test_urls_are_of_their_platforms(url: str, name: str | None) -> None:
    helper = Registry({}).match(IngestRequest(url), None)
    assert (helper.name if helper else None) == name


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://zenodo.org/records/7/files/p.csv?download=1", "/api/records/7"),
        ("https://zenodo.org/doi/10.5281/ZENODO.7/", "/api/records/7"),
        ("https://zenodo.org/DOI/10.5281%2Fzenodo.7#files", "/api/records/7"),
        ("https://rdm.example.org/doi/10.22002/ab123-cd456", "/api/records/ab123-cd456"),
        ("https://rdm.example.org/doi/10.22002/rdm.ab123-cd456", "/api/records/ab123-cd456"),
        ("https://api.figshare.com/v2/articles/123456/files", "/v2/articles/123456"),
        ("https://api.figshare.com/v2/articles/123456/versions/2/files", "/v2/articles/123456/versions/2"),
        ("https://figshare.com/ndownloader/articles/123456/versions/2", "/v2/articles/123456/versions/2"),
        ("https://figshare.com/articles/dataset/Prices/123456/101", "/v2/articles/123456/versions/101"),
        ("https://figshare.com/articles/dataset/2020/123456", "/v2/articles/123456"),
        ("https://figshare.com/articles/dataset/2020/123456/1", "/v2/articles/123456/versions/1"),
        ("https://api.figshare.com/v2/articles/123456/versions/101/files", "/v2/articles/123456/versions/101"),
        ("https://figshare.com/collections/Prices/98765/101", "/v2/collections/98765/articles"),
        ("https://api.figshare.com/v2/collections/98765/articles", "/v2/collections/98765/articles"),
        ("https://figshare.com/projects/Prices_2020/98765", "/v2/projects/98765/articles"),
        (f"https://data.4tu.nl/ndownloader/items/{UUID}/versions/1", f"/v2/articles/{UUID}/versions/1"),
        (f"https://data.4tu.nl/datasets/{UUID.upper()}/1", f"/v2/articles/{UUID}/versions/1"),
        (DV.replace("doi:", "https://doi.org/") + "/", PERSISTENT),
        ("https://dvn.example.org/dvn/study?globalId=http://hdl.handle.net/1902.1/7", "persistentId=hdl%3A1902.1%2F7"),
        ("https://dataverse.harvard.edu/api/datasets/7/versions/1.0", "/api/datasets/7/"),
        ("https://dataverse.harvard.edu/api/v1/files/11", "/api/files/11"),
        ("https://dataverse.harvard.edu/dataverse.xhtml?alias=econ", "/api/dataverses/econ/contents"),
        ("https://archive.org/compress/prices", "/metadata/prices"),
        ("https://archive.org/embed/prices", "/metadata/prices"),
        ("https://osf.io/Y8T6R/", "/v2/nodes/y8t6r/"),
        ("https://osf.io/project/y8t6r/files", "/v2/nodes/y8t6r/"),
        ("https://datadryad.org/api/v2/datasets/doi%3A10.5061%2Fdryad.abc/versions", "doi%3A10.5061%2Fdryad.abc"),
        ("https://datadryad.org/api/v2/datasets/doi%3A10.5061%2Fdryad.abc/download", "doi%3A10.5061%2Fdryad.abc"),
        ("https://data.mendeley.com/public-api/datasets/abc123?version=2", "/public-api/datasets/abc123?version=2"),
        ("https://data.mendeley.com/datasets/abc123/2/files/f1", "/public-api/datasets/abc123?version=2"),
        ("https://hal.science/HAL-01234567V2", "halId_s:hal-01234567%20AND%20version_i:2" + HAL_QUERY),
        ("https://www.openicpsr.org/openicpsr/project/7/version/v2/view", "/openicpsr/project/7/version/V2/view"),
        (f"https://ds.example.org/entities/Dataset/{UUID.upper()}", f"/server/api/core/items/{UUID}"),
        ("https://ds.example.org/bitstream/10419/7/1/p.csv", "/server/api/pid/find?id=10419%2F7"),
        (f"https://ds.example.org/communities/{UUID}", f"/server/api/core/communities/{UUID}"),
    ],
)
def test_forms_of_urls_lead_to_the_same_question(url: str, asked: str) -> None:
    configs = {"inveniordm": "rdm.example.org", "dspace": "ds.example.org"}
    registry = Registry({name: PlatformConfig(hosts=(host,)) for name, host in configs.items()})
    helper = registry.match(IngestRequest(url), None)
    assert helper is not None
    question = next(helper.questions(IngestRequest(url), None))
    assert question.url.partition("?")[0].endswith(asked) or question.url.endswith(asked)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("figshare", "https://figshare.com/articles/dataset/p/123456/{}"), ("dataverse", DV + "&version={}"),
        ("mendeley", "https://data.mendeley.com/datasets/abc123/{}"), ("hal", "https://hal.science/hal-01234567v{}"),
    ],
)  # fmt: skip
def test_a_version_with_thousands_of_digits_is_none(name: str, url: str) -> None:
    cls, _, bodies = CASES[name]
    with pytest.raises((FilesetPlatformScopeError, PlatformNotFound)):
        item_of(cls, url.format("9" * 5000), bodies)
    with pytest.raises(PlatformNotFound):
        item_of(OpenIcpsrHelper, PROJECT.replace("V1", "V" + "9" * 5000), {"/view": PAGE})


def test_a_doi_of_another_publisher_is_no_id_of_a_record() -> None:
    assert Registry({}).match(IngestRequest("https://zenodo.org/doi/10.1016/j.x.2020.01.001"), None) is None


@pytest.mark.parametrize(
    ("helper", "url", "is_trusted"),
    [
        (ZenodoHelper(), "https://zenodo.org/api/records/7", True),
        (ZenodoHelper(), "http://zenodo.org/api/records/7", False),
        (ZenodoHelper(), "https://evil.example:99999/", False),
        (DataverseHelper(PlatformConfig(hosts=("dv.example",))), "https://evil.example:99999/", False),
        (DataverseHelper(PlatformConfig(hosts=("dv.example",))), "http://dv.example/", False),
        (ZenodoHelper(PlatformConfig(api="http://zenodo.lan")), "http://zenodo.lan/api/records/7", True),
        (ZenodoHelper(PlatformConfig(api="http://zenodo.lan")), "http://zenodo.org/api/records/7", False),
        (ZenodoHelper(PlatformConfig(hosts=("127.0.0.1:99",))), "http://127.0.0.1:99/api", True),
        (ZenodoHelper(PlatformConfig(hosts=("[::1]:99",))), "http://[::1]:99/api", True),
        (ZenodoHelper(PlatformConfig(hosts=("127.evil.example",))), "http://127.evil.example/", False),
    ],
)
def test_a_token_goes_to_the_hosts_of_its_platform_and_not_in_clear(
    helper: FilesetPlatformHelper, url: str, is_trusted: bool
) -> None:
    assert helper.trusts(url) == is_trusted


def test_a_further_question_is_asked_as_its_api_is() -> None:
    assert same_origin(JsonValue("http://zenodo.org/x"), "https://zenodo.org/api") == "https://zenodo.org/x"
    for url in ("http://zenodo.org:80/x", "https://zenodo.org:99999/x", "https://evil.example/x"):
        with pytest.raises(PlatformError):
            same_origin(JsonValue(url), "https://zenodo.org/api")


def test_a_platform_can_be_played_on_another_host() -> None:
    configs = {"zenodo": PlatformConfig(hosts=("127.0.0.1:99",)), "figshare": PlatformConfig(enabled=False)}
    registry = Registry(configs)
    helper = registry.match(IngestRequest("http://127.0.0.1:99/records/7"), None)
    assert helper is not None
    assert (helper.name, helper.base("http://127.0.0.1:99/records/7")) == ("zenodo", "http://127.0.0.1:99/api")
    assert registry.match(IngestRequest("https://zenodo.org/records/7"), None) is None
    assert registry.match(IngestRequest("https://figshare.com/articles/dataset/p/123456"), None) is None
    own = ZenodoHelper(PlatformConfig(api="http://127.0.0.1:99"))
    assert own.base("https://zenodo.org/records/7") == "http://127.0.0.1:99/api"


@pytest.mark.parametrize(
    ("disabled", "configured", "taken_by"),
    [
        ("zenodo", "dspace", None), ("zenodo", "inveniordm", "inveniordm"), ("inveniordm", "dspace", "zenodo"),
        ("generic", "zenodo", "zenodo"),
    ],
)  # fmt: skip
def test_no_other_helper_takes_what_belongs_to_a_disabled_platform(
    disabled: str, configured: str, taken_by: str | None
) -> None:
    """Not even one to which the page itself leads, unless its hosts are configured."""
    url = "https://zenodo.org/records/7"
    page = Resource(url, 200, {}, b'<a href="https://zenodo.org/api/records/7/files/p.csv/content">')
    hosts = PlatformConfig(hosts=("dspace.example.org" if configured == "dspace" else "zenodo.org",))
    found = Registry({disabled: PlatformConfig(enabled=False), configured: hosts}).match(IngestRequest(url), page)
    assert (found.name if found else None) == taken_by


# -- any JSON at all ------------------------------------------------------------------------------

ODD = [None, True, -1, 3.5, 10**400, "", "x" * 200_000, "\ud800\0\u202e", [], [[]], {}, {"a": {}}, [None], [7], ["http://["]]
_MISSING = object()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place within a JSON value."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from places(inner, (*path, number))


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The value with another one at a place, or nothing there."""
    if not path:
        return None if odd is _MISSING else odd
    whole = copy.copy(value)
    if len(path) == 1 and odd is _MISSING:
        del whole[path[0]]
    else:
        whole[path[0]] = changed(value[path[0]], path[1:], odd)
    return whole


def assert_survives(cls: type[FilesetPlatformHelper], url: str, bodies: Mapping[str, object]) -> None:
    """Every value at every place of every answer gives a data set, or a problem that names the place."""
    for part, body in bodies.items():
        for path in places(body):
            for odd in (_MISSING, *ODD):
                if not path and odd is _MISSING:
                    continue
                try:
                    found = item_of(cls, url, {part: changed(body, path, odd), **{
                        other: it for other, it in bodies.items() if other != part}})  # fmt: skip
                except FilesetProblem as problem:
                    assert problem.message  # noqa: PT017
                    if isinstance(problem, PlatformError):
                        assert ":" in problem.message  # noqa: PT017
                    continue
                for file in found.manifest or ():
                    assert file.path.encode()
                    assert file.size is None or file.size >= 0
                    (file.platform_url or "").encode()


@pytest.mark.parametrize("name", CASES)
def test_any_json_in_any_place_is_a_data_set_or_a_problem(name: str) -> None:
    assert_survives(*CASES[name])


def test_a_problem_names_the_path_of_the_field() -> None:
    record = zenodo()
    record["files"][1]["size"] = "much"
    with pytest.raises(PlatformError, match=r"^files\[1\]\.size: must be a whole number"):
        item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": record})
    for broken in (b"<html>", b"", b"[" * 100_000, b'{"id": NaN}', b'{"id": 1' + b"0" * 5000 + b"}", b"\xff\xfe"):
        with pytest.raises(PlatformError, match="the answer: is not JSON"):
            item_of(ZenodoHelper, "https://zenodo.org/records/7", {"/records/7": broken})


# -- samples of real answers --------------------------------------------------------------------------

DRYAD_URL = "https://datadryad.org/dataset/doi:10.5061/dryad.50kt0"
REAL: Mapping[str, tuple[type[FilesetPlatformHelper], str, str, int]] = {
    "zenodo/record-3904280-current-2026-single-2GB.json": (
        ZenodoHelper, "https://zenodo.org/records/3904280", "/3904280", 1,
    ),
    "zenodo/search-7085903-transitional-2023-10-multifile.json": (
        ZenodoHelper, "https://zenodo.org/records/7085903", "/7085903", 5,
    ),
    "zenodo/record-7078760-legacy-2022.json": (
        ZenodoHelper, "https://zenodo.org/record/7078760", "/7078760", 3,
    ),
    "zenodo/record-3459420-legacy-2019-12files.json": (
        ZenodoHelper, "https://zenodo.org/record/3459420", "/3459420", 12,
    ),
    "figshare/article-22306426-trimmed-2026.json": (
        FigshareHelper, "https://figshare.com/articles/media/x/22306426", "/22306426", 2,
    ),
    "dataverse/dataset-RLMYMR-2022-2files-tabular.json": (
        DataverseHelper, DV.replace("ABCDEF", "RLMYMR"), "/datasets/", 2,
    ),
    "dataverse/dataset-5WTSUZ-2022-11files-directoryLabel.json": (
        DataverseHelper, DV.replace("ABCDEF", "5WTSUZ"), "/datasets/", 11,
    ),
    "dataverse/dataset-27221-2026-single-zip-trimmed.json": (
        DataverseHelper, DV.replace("ABCDEF", "27221"), "/datasets/", 1,
    ),
    "mendeley/dataset-bjy2svvmn8-excerpt-3-of-3900-files.json": (
        MendeleyHelper, "https://data.mendeley.com/datasets/bjy2svvmn8/1", "bjy2svvmn8?", 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_samples_give_all_their_files(name: str) -> None:
    cls, url, part, count = REAL[name]
    found = item_of(cls, url, {part: sample(name)})
    assert found.file_count == count
    assert all(file.size is not None and (file.md5 or file.sha256) for file in found.manifest or ())


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_any_json_in_any_place_of_a_sample(name: str) -> None:
    cls, url, part, _ = REAL[name]
    assert_survives(cls, url, {part: sample(name)})


@pytest.mark.parametrize(
    ("name", "cls", "url", "problem"),
    [
        ("figshare/article-16823602-curation-not-public", FigshareHelper, "/x/16823602", PlatformRestrictedError),
        ("figshare/article-30801242-private-draft-new", FigshareHelper, "/x/30801242", PlatformRestrictedError),
        ("figshare/article-search-page", FigshareHelper, "/x/19199774", PlatformError),
        ("archiveorg/metadata-nasa", ArchiveOrgHelper, "https://archive.org/details/nasa", FilesetPlatformScopeError),
    ],
)
def test_samples_that_are_no_published_data_sets(
    name: str, cls: type[FilesetPlatformHelper], url: str, problem: type[FilesetProblem]
) -> None:
    url = url if url.startswith("https:") else f"https://figshare.com/articles/dataset{url}"
    body = sample(f"{name}.json")
    with pytest.raises(problem):
        item_of(cls, url, {"/": body})
