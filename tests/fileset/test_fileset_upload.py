"""Data sets that are uploaded into items of an archive.org that is played on loopback."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from fileset_platform import Platform, bytes_of, playing, zenodo
from fileset_support import Filesets, make_archive

from archec.fileset.archiveorg_items import ACCESS_KEY, SECRET_KEY
from archec.fileset.model import IngestStrategy


@pytest.fixture
def uploading(folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Filesets:
    """An archive with keys for the played platform, where data sets of more than one file go."""
    monkeypatch.setenv(ACCESS_KEY, "key")
    monkeypatch.setenv(SECRET_KEY, "secret")
    group = {
        "web_max_files": 1, "archiveorg_s3": platform.url, "archiveorg_url": platform.url,
        "archiveorg_collection": "econ", "resolver": platform.url,
        "platforms": {"zenodo": {"hosts": [platform.host], "rate": "none"},
                      "archiveorg": {"hosts": [platform.host], "rate": "none"}},
    }  # fmt: skip
    return make_archive(folder, platform, fileset=group, fetch={"max_delay": "1s"})


def named(platform: Platform, number: int) -> str:
    return f"{platform.host.replace(':', '_')}-{number}"


def test_without_keys_the_obi_store_keeps_it(
    uploading: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_KEY)
    (result,) = uploading.ingest(zenodo(platform, 7, {"p": 10, "q": 20}))
    assert (result.status, result.ingest_strategy) == ("success", "web-fileset")
    assert (result.ingest_strategy_preferred, result.archiveorg_item_name) == ("archiveorg-fileset", None)
    assert platform.puts == []


def test_the_files_come_into_an_item_with_its_metadata(uploading: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"d/p é.csv": 3_000_000, "q": 20, "empty": 0})
    item = named(platform, 7)
    (result,) = uploading.ingest(url)
    assert (result.status, result.ingest_strategy, result.archiveorg_item_name) == (
        "success", "archiveorg-fileset", item,
    )  # fmt: skip
    assert platform.items[item] == {
        "d/p é.csv": bytes_of("d/p é.csv", 3_000_000), "q": bytes_of("q", 20), "empty": b""
    }  # fmt: skip
    sent = [one for one in platform.headers if "x-archive-size-hint" in one][platform.puts.index(f"/{item}/q")]
    assert {name: value for name, value in sent.items() if name.startswith("x-archive-")} == {
        "x-archive-auto-make-bucket": "1", "x-archive-queue-derive": "0", "x-archive-size-hint": "3000020",
        "x-archive-meta-mediatype": "data", "x-archive-meta-collection": "econ", "x-archive-meta-title": "Prices 7",
        "x-archive-meta-originalurl": url, "x-archive-meta-date": "2026-01-02",
    }  # fmt: skip
    platform.puts.clear()
    uploading.asked()
    (again,) = uploading.ingest(url)
    assert (again.status, again.ingest_strategy, again.archiveorg_item_name) == (
        "success-existing", "archiveorg-fileset", item,
    )  # fmt: skip
    assert (uploading.asked(), platform.puts) == (["/api/records/7", f"/metadata/{item}"], [])
    for path in Path(uploading.config.base).rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes(), path


def test_what_a_token_opens_is_not_uploaded(
    uploading: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    monkeypatch.setenv("TEST_TOKEN", "hush-hush")
    platforms = {"zenodo": {"hosts": [platform.host], "rate": "none", "token": "TEST_TOKEN"}}
    group = {"web_max_files": 1, "archiveorg_s3": platform.url, "archiveorg_url": platform.url, "platforms": platforms}
    filesets = make_archive(Path(uploading.config.base), platform, fileset=group)
    platform.bodies["/api/records/7"]["metadata"] |= {"access_right": "restricted"}
    (result,) = filesets.ingest(url)
    assert (result.status, result.ingest_strategy) == ("success", "web-fileset")
    assert (result.ingest_strategy_preferred, platform.puts) == ("archiveorg-fileset", [])
    platform.bodies["/api/records/7"]["metadata"] |= {"access_right": "open"}
    assert filesets.ingest(url, force=True)[0].ingest_strategy == "archiveorg-fileset"


def test_a_file_alone_and_a_bundle(uploading: Filesets, platform: Platform) -> None:
    (result, file) = uploading.ingest(zenodo(platform, 7, {"p": 10}), strategy=IngestStrategy.ARCHIVEORG_FILE)
    assert (result.status, file.archiveorg_item_name) == ("success-file", named(platform, 7))
    url = zenodo(platform, 9, {"p.csv": 5, "q.csv": 6}, concept=8)
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as made:
        made.writestr("p.csv", bytes_of("p.csv", 5))
        made.writestr("q.csv", bytes_of("q.csv", 6))
    platform.bodies["/api/records/9"]["links"]["archive"] = f"{platform.url}/all"
    platform.files["/all"] = bundle.getvalue()
    (result,) = uploading.ingest(url, strategy=IngestStrategy.ARCHIVEORG_FILESET_BUNDLED)
    item = named(platform, 9)
    assert (result.status, result.ingest_strategy) == ("success", "archiveorg-fileset-bundled")
    assert result.fileset_bundle is not None
    assert result.fileset_bundle.archiveorg_bundle_path == f"{item}.zip"
    assert platform.items[item] == {f"{item}.zip": bundle.getvalue()}


def test_data_sets_with_files_of_the_same_name_have_items_of_their_own(
    uploading: Filesets, platform: Platform
) -> None:
    c = "c" * 200
    paths = ["/a/p.csv", "/b/p.csv", "/b/p.csv?id=1", "/b_p.csv", "/b_p.csv_id_1", f"/{c}/1/p.csv", f"/{c}/2/p.csv"]
    platform.files |= {path.partition("?")[0]: path.encode() for path in paths}
    urls = [f"{platform.url}{path}" for path in paths]
    found = uploading.ingest(*urls, direct=True, strategy=IngestStrategy.ARCHIVEORG_FILE)
    assert [(one.status, one.message) for one in found[::2]] == [("success-file", None)] * 7
    assert len(platform.items) == 7
    assert max(map(len, platform.items)) <= 100


def test_an_item_names_no_secret_of_the_url_that_was_asked_for(uploading: Filesets, platform: Platform) -> None:
    platform.files["/prices.csv"] = b"a,b\n"
    url = f"{platform.url}/prices.csv?v=2&access_token=hush-hush"
    strategy = IngestStrategy.ARCHIVEORG_FILE
    assert uploading.ingest(url, direct=True, strategy=strategy)[0].ingest_strategy == "archiveorg-file"
    sent = [one for one in platform.headers if "x-archive-size-hint" in one]
    assert [one["x-archive-meta-originalurl"] for one in sent] == [f"{platform.url}/prices.csv?v=2"]


def test_what_failed_goes_on_with_what_the_item_lacks(uploading: Filesets, platform: Platform) -> None:
    url, item = zenodo(platform, 7, {"p": 10, "q": 20, "r": 30}), named(platform, 7)
    platform.refusals = [503, 200, 403]
    (result,) = uploading.ingest(url)
    assert (result.status, result.hit, result.archiveorg_item_name) == ("error-archiveorg-upload", False, None)
    assert result.message == f"{platform.url}/{item}/q: HTTP 403: not now"
    assert [file.status for file in result.manifest or ()] == ["success"] * 3
    platform.puts.clear()
    platform.sent.clear()
    (again,) = uploading.ingest(url)
    assert (again.status, again.archiveorg_item_name) == ("success", item)
    assert (platform.puts, platform.sent) == ([f"/{item}/q", f"/{item}/r"], {})


def test_a_service_that_fails_again_and_again_is_asked_no_more(
    uploading: Filesets, platform: Platform, folder: Path
) -> None:
    urls = [zenodo(platform, n, {"p": 10, "q": 20}, concept=n + 100) for n in range(10, 20)]
    with playing() as node:
        fileset = {"web_max_files": 1, "archiveorg_s3": node.url, "archiveorg_url": platform.url}
        filesets = make_archive(folder, platform, fileset=fileset, fetch={"max_delay": "1s"})
        node.refusals = [500] * 99
        results = filesets.ingest(*urls)
        assert {result.status for result in results} == {"error-archiveorg-upload"}
        assert (len(node.puts), filesets.config.fetch.host_failures) == (5, 5)
        assert "was given up for this run after 5 failures" in (results[-1].message or "")
        node.refusals.clear()
        node.puts.clear()
        filesets.ingest(urls[0])
        assert len(node.puts) == 2, "another run asks again"
        node.refusals = [503] * 6
        node.puts.clear()
        slowed = filesets.ingest(*urls[1:5])
        assert not any("given up" in (result.message or "") for result in slowed), "it has asked to slow down only"


def test_what_is_there_is_not_overwritten_and_what_does_not_come_is_told(
    uploading: Filesets, platform: Platform
) -> None:
    url, item = zenodo(platform, 7, {"p": 10, "q": 20}), named(platform, 7)
    platform.items[item] = {"p": b"of somebody else"}
    (result,) = uploading.ingest(url)
    assert (result.status, platform.puts) == ("error-archiveorg-upload", [])
    assert "is not replaced" in (result.message or "")
    platform.bodies[f"/metadata/{item}"] = {"files": []}
    (result,) = uploading.ingest(url)
    assert (result.status, len(platform.puts)) == ("error-archiveorg-upload", 2)
    assert "does not show p as uploaded" in (result.message or "")


def test_an_item_of_archive_org_is_there_already(uploading: Filesets, platform: Platform) -> None:
    platform.files["/download/prices/p"], platform.files["/download/prices/q"] = b"abc", b"abcd"
    platform.bodies["/metadata/prices"] = {
        "metadata": {"identifier": "prices", "mediatype": "data", "title": "Prices"},
        "files": [{"name": "p", "source": "original", "size": "3"}, {"name": "q", "source": "original", "size": "4"}],
    }
    (result,) = uploading.ingest(f"{platform.url}/details/prices")
    assert (result.status, result.ingest_strategy, result.archiveorg_item_name) == (
        "success", "archiveorg-fileset", "prices",
    ), result.message  # fmt: skip
    assert platform.puts == []
