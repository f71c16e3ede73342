"""A helper for another platform that a package brings by an entry point."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from fileset_platform import Platform
from fileset_support import make_archive

MODULE = '''
from archec.fileset import FilesetManifestFile, FilesetPlatformHelper
from archec.fileset.platforms.base import Question, path_of


class ShelfHelper(FilesetPlatformHelper):
    name, hosts, api = "shelf", ("shelf.example.org",), "/api"
    pages = ("/books/{work}", "/books/{work}")

    def questions(self, request, resource, *, follow=False):
        url = self.url_of(request, resource)
        answer = yield Question(self.base(url) + path_of(url))
        book = answer.json()
        files = [FilesetManifestFile(row["name"].text(), row["size"].whole_or_none(), platform_url=row["url"].text())
                 for row in book["files"].items()]
        return self.item(url, book["id"].word(), files, title="A shelf")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package, as far as Python's importing is concerned."""
    (tmp_path / "shelf_helper.py").write_text(MODULE)
    info = tmp_path / "shelf_helper-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-helper\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[archec.fileset_platforms]\nshelf = shelf_helper:ShelfHelper\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()


def test_a_package_brings_a_platform(package: None, platform: Platform, folder: Path) -> None:
    own = {"shelf": {"hosts": [platform.host], "rate": "none"}}
    filesets = make_archive(folder, platform, fileset={"platforms": own, "resolver": platform.url})
    platform.files["/files/p"] = b"abc"
    platform.bodies["/api/books/7"] = {"id": 7, "files": [{"name": "p", "size": 3, "url": f"{platform.url}/files/p"}]}
    result = filesets.ingest(f"{platform.url}/books/7")[0]
    assert (result.status, result.platform_name, result.platform_id) == ("success-file", "shelf", "7")
    assert filesets.ingest(str(result.fileset))[0].status == "success-existing"
