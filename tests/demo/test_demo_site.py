"""The demo's site over real HTTP and its data set on disk, stage by stage."""

from __future__ import annotations

import hashlib
import threading
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from archec.demo.papers import PAPERS, STAGES, answer, write_data_set
from archec.demo.site import DemoSite
from archec.errors import BadName, UsageError
from archec.ids import normalise_handle, normalise_url
from archec.text.extract import text_md5


@pytest.fixture
def site():
    with DemoSite() as running:
        yield running


class Client:
    """One kept connection."""

    def __init__(self, site: DemoSite) -> None:
        host, _, port = site.base_url.removeprefix("http://").partition(":")
        self.connection = HTTPConnection(host, int(port), timeout=20)

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
        self.connection.request(method, path, headers={key.replace("_", "-"): headers[key] for key in headers})
        response = self.connection.getresponse()
        return response, response.read()


@pytest.fixture
def client(site: DemoSite):
    client = Client(site)
    yield client
    client.connection.close()


def stages_of(site: DemoSite, client: Client, path: str) -> list[tuple[int, bytes]]:
    found = []
    for stage in STAGES:
        site.stage = stage
        response, body = client.get(path)
        found.append((response.status, body))
    return found


def text_of(tmp_path: Path, body: bytes, kind: str) -> str | None:
    path = tmp_path / hashlib.md5(body).hexdigest()
    path.write_bytes(body)
    return text_md5(str(path), kind).md5


def test_serves_papers_of_every_type(client: Client) -> None:
    for path, kind, start in [
        ("/papers/bread.pdf", "application/pdf", b"%PDF-"),
        ("/papers/chess.txt", "text/plain; charset=utf-8", b"Notes on"),
        ("/papers/gardens.html", "text/html; charset=utf-8", b"<!DOCTYPE html>"),
        ("/", "text/html; charset=utf-8", b"<!DOCTYPE html>"),
    ]:
        response, body = client.get(path)
        assert (response.status, response.headers["Content-Type"]) == (200, kind)
        assert body.startswith(start)
        assert int(response.headers["Content-Length"]) == len(body)


def test_a_stable_a_revised_and_a_cosmetic_paper(site: DemoSite, client: Client, tmp_path: Path) -> None:
    stable = stages_of(site, client, "/papers/bread.pdf")
    revised = stages_of(site, client, "/papers/ferries.pdf")
    cosmetic = stages_of(site, client, "/papers/umbrellas.pdf")
    assert len(set(stable)) == 1
    assert revised[0] != revised[1] == revised[2]
    assert len(set(cosmetic)) == 3
    texts = [{text_of(tmp_path, body, "application/pdf") for _, body in paper} for paper in (stable, revised, cosmetic)]
    assert [len(found) for found in texts] == [1, 2, 1]
    assert None not in set.union(*texts)


def test_gone_overloaded_and_log_in_page(site: DemoSite, client: Client) -> None:
    assert [status for status, _ in stages_of(site, client, "/papers/clocks.pdf")] == [200, 404, 404]
    assert [status for status, _ in stages_of(site, client, "/papers/lighthouses.pdf")] == [200, 503, 200]
    shovels = stages_of(site, client, "/papers/shovels.pdf")
    assert [status for status, _ in shovels] == [200, 200, 200]
    assert [body[:5] for _, body in shovels] == [b"%PDF-", b"%PDF-", b"<!DOC"]


def test_redirects(client: Client) -> None:
    path, hops = "/go/5", []
    while True:
        response, body = client.get(path)
        if response.status == 200:
            break
        hops.append(response.status)
        path = response.headers["Location"]
    assert (hops, path, body[:5]) == ([302, 301], "/papers/tolls.pdf", b"%PDF-")
    response, _ = client.get("/papers/queues")
    assert (response.status, response.headers["Location"]) == (301, "/papers/queues/")


def test_a_page_that_changes_at_each_visit_reads_the_same(client: Client, tmp_path: Path) -> None:
    (first, one), (_, two) = client.get("/papers/queues/"), client.get("/papers/queues/")
    assert one != two
    assert first.headers["ETag"] is None
    assert first.headers["Last-Modified"] is None
    assert text_of(tmp_path, one, "text/html") == text_of(tmp_path, two, "text/html") is not None


def test_robots(client: Client) -> None:
    response, body = client.get("/robots.txt")
    assert response.status == 200
    assert b"Disallow: /private/" in body
    assert any(paper.path.startswith("/private/") for paper in PAPERS)


def test_conditional_requests(site: DemoSite, client: Client) -> None:
    response, _ = client.get("/papers/ferries.pdf")
    tag, modified = response.headers["ETag"], response.headers["Last-Modified"]
    for headers in ({"If_None_Match": tag}, {"If_None_Match": f'"x", W/{tag}'}, {"If_None_Match": "*"},
                    {"If_Modified_Since": modified}):
        again, body = client.get("/papers/ferries.pdf", **headers)
        assert (again.status, body, again.headers["ETag"]) == (304, b"", tag)
    for headers in ({"If_None_Match": '"x"', "If_Modified_Since": modified}, {"If_Modified_Since": "yesterday"},
                    {"If_Modified_Since": "Fri, 01 May 1998 12:00:00 GMT"}):
        assert client.get("/papers/ferries.pdf", **headers)[0].status == 200
    site.stage = 2
    assert client.get("/papers/ferries.pdf", If_None_Match=tag)[0].status == 200
    assert client.get("/papers/ferries.pdf", If_Modified_Since=modified)[0].status == 200
    assert client.get("/papers/bread.pdf", If_Modified_Since=modified)[0].status == 304


def test_head_unknown_paths_and_methods(site: DemoSite, client: Client) -> None:
    whole, body = client.get("/papers/bread.pdf?x=1")
    head, nothing = client.get("/papers/bread.pdf", "HEAD")
    assert nothing == b""
    assert head.headers["Content-Length"] == whole.headers["Content-Length"] == str(len(body))
    assert client.get("/papers/%2e%2e/%00")[0].status == 404
    assert client.get("/papers/bread.pdf/")[0].status == 404
    assert client.get("/", "DELETE")[0].status == 501


def test_many_clients_at_once(site: DemoSite) -> None:
    statuses: list[int] = []

    def visit() -> None:
        client = Client(site)
        statuses.extend(client.get("/papers/bread.pdf")[0].status for _ in range(10))
        client.connection.close()

    threads = [threading.Thread(target=visit) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 120


def test_a_closed_site_answers_nobody() -> None:
    with DemoSite() as site:
        Client(site).get("/")
    with pytest.raises(ConnectionRefusedError):
        Client(site).get("/")


def test_errors(site: DemoSite, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write_data_set(tmp_path, 4, site.base_url)


def test_answers_are_pure() -> None:
    for paper in PAPERS:
        for stage in STAGES:
            assert answer(paper.path, stage, 7) == answer(paper.path, stage, 7)


# -- the data set ---------------------------------------------------------------------------------


def templates(directory: Path) -> dict[str, str]:
    """Handle -> template, by the bare rules of the format."""
    found = {}
    for path in sorted(directory.rglob("*.r*d*f")):
        data = path.read_bytes()
        text = data.decode("cp1252" if path.name == "2010.rdf" else "utf-8").replace("\r\n", "\n")
        for part in text.split("Template-Type:")[1:]:
            handle = next(line for line in part.splitlines() if line.startswith("Handle:")).partition(" ")[2]
            assert normalise_handle(handle) not in found
            found[normalise_handle(handle)] = "Template-Type:" + part.rstrip("\n")
    return found


def test_data_set_through_the_stages(site: DemoSite, tmp_path: Path) -> None:
    seen = []
    for stage in STAGES:
        written = write_data_set(tmp_path, stage, site.base_url)
        assert sorted(written) == sorted(path for path in tmp_path.rglob("*") if path.is_file())
        seen.append(templates(tmp_path))
    one, two, three = seen
    well, tags = "RePEc:dmo:wpaper:2011-11", "RePEc:dmo:wpaper:2011-12"
    assert len(one) == len(three) == 2 + len(PAPERS)
    assert set(one) - set(two) == {well}
    assert set(two) < set(three) == set(one)
    assert {handle for handle in two if one[handle] != two[handle]} == {tags}
    assert two == {handle: three[handle] for handle in two}
    assert three[well] == one[well]


def test_file_urls_point_into_the_site(site: DemoSite, client: Client, tmp_path: Path) -> None:
    write_data_set(tmp_path, 1, site.base_url)
    urls, bad = [], []
    for template in templates(tmp_path).values():
        for line in template.splitlines():
            if line.startswith("File-URL:"):
                try:
                    urls.append(normalise_url(line.partition(":")[2]))
                except BadName:
                    bad.append(line)
    assert len(urls) == len(set(urls)) == len(PAPERS)
    assert len(bad) == 1
    assert all(url.startswith(site.base_url + "/") for url in urls)
    assert {client.get(url.removeprefix(site.base_url))[0].status for url in urls} == {200, 301, 302}
