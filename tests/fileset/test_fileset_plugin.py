"""A helper for another platform that a package brings by an entry point."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fileset_platform import Platform
from fileset_support import Filesets, make_archive
from gather_support import archec_inline

from archec.errors import ConfigError, Exit
from archec.fileset.lookup import all_filesets

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
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a package, as far as Python's importing is concerned, with ``MODULE`` and what is appended to it."""

    def installed(more: str = "") -> None:
        (tmp_path / "shelf_helper.py").write_text(MODULE + more)
        info = tmp_path / "shelf_helper-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-helper\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[archec.fileset_platforms]\nshelf = shelf_helper:ShelfHelper\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        monkeypatch.delitem(sys.modules, "shelf_helper", raising=False)
        importlib.invalidate_caches()

    return installed


def shelf(folder: Path, platform: Platform) -> Filesets:
    """An archive whose shelf is the played platform, with one book."""
    own = {"shelf": {"hosts": [platform.host], "rate": "none"}}
    platform.files["/files/p"] = b"abc"
    platform.bodies["/api/books/7"] = {"id": 7, "files": [{"name": "p", "size": 3, "url": f"{platform.url}/files/p"}]}
    return make_archive(folder, platform, fileset={"platforms": own, "resolver": platform.url})


def test_a_package_brings_a_platform(install: Callable[..., None], platform: Platform, folder: Path) -> None:
    install()
    filesets = shelf(folder, platform)
    result = filesets.ingest(f"{platform.url}/books/7")[0]
    assert (result.status, result.platform_name, result.platform_id) == ("success-file", "shelf", "7")
    assert filesets.ingest(str(result.fileset))[0].status == "success-existing"


ITEM = "replace(super_item(self, *args, **kwargs), {})"
FILE = "FilesetManifestFile('p', platform_url='http://h/p', {})"


@pytest.mark.parametrize(
    "returned",
    [
        "None", "{'platform_id': '7'}", "args", *map(ITEM.format, (
            "title='\\ud800'", "version=3", "order=('a',)", "published='today'", "archiveorg_item_meta={'a': object()}",
            "archiveorg_item_meta=[1]", "platform_name='zenodo'", "platform_domain='EXAMPLE.org'",
            "work_id='x' * 20000", "manifest=[{'path': 'p'}]", "manifest=5",
            "manifest=map(FilesetManifestFile, map(str, count()))",
        )), *(ITEM.format(f"manifest=[{FILE.format(one)}]") for one in (
            "size=3.0", "size='3'", "size=-1", "size=2**70", "md5=5", "extra={'a': object()}", "extra=[1]",
            "mimetype='\\ud800'", "status='huh'", "status='success'", "terminal_dt=5",
        )),
    ],
)  # fmt: skip
def test_what_a_helper_returns_is_checked_before_anything_is_stored(
    install: Callable[..., None], platform: Platform, folder: Path, returned: str
) -> None:
    install(f"""
from itertools import count
from msgspec.structs import replace
super_item = FilesetPlatformHelper.item
ShelfHelper.item = lambda self, *args, **kwargs: {returned}
""")
    filesets = shelf(folder, platform)
    (result,) = filesets.ingest(f"{platform.url}/books/7")
    assert result.status == "platform-error"
    assert "the helper for shelf returns what cannot be stored" in (result.message or "")
    assert "/files/p" not in filesets.asked()
    with filesets.archive() as archive:
        assert not list(all_filesets(archive))


def test_checksums_of_a_helper_may_be_in_upper_case_and_its_files_come_one_by_one(
    install: Callable[..., None], platform: Platform, folder: Path
) -> None:
    install("""
one = ShelfHelper.questions
def questions(self, request, resource, *, follow=False):
    item = yield from one(self, request, resource, follow=follow)
    from msgspec.structs import replace
    file = replace(item.manifest[0], md5="MD5:900150983CD24FB0D6963F7D28E17F72")
    return replace(item, manifest=(replace(file, path=f"p{n}") for n in range(5)))
ShelfHelper.questions = questions
""")
    (result,) = shelf(folder, platform).ingest(f"{platform.url}/books/7")
    assert (result.status, len(result.manifest or ())) == ("success", 5)


@pytest.mark.parametrize(
    ("raised", "named"), [("KeyError('x')", "KeyError: 'x'"), ("StorageFull('full')", "StorageFull: full")]
)
def test_a_helper_that_fails_to_match_is_named(
    install: Callable[..., None], platform: Platform, folder: Path, raised: str, named: str
) -> None:
    install(f"""
def match_request(*args, **kwargs):
    from archec.errors import StorageFull
    raise {raised}
ShelfHelper.match_request = match_request
""")
    filesets = shelf(folder, platform)
    results = filesets.ingest(f"{platform.url}/books/7", f"{platform.url}/none")
    assert [one.status for one in results] == ["platform-error"] * 2
    assert f"the helper for shelf fails: {named}" in (results[0].message or "")
    done = archec_inline(filesets.config, "get", f"{platform.url}/books/8")
    assert (done.code, "the helper for shelf fails" in done.err) == (1, True), done


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        ("NotHeld('x')", "platform-error"), ("StorageFull('x')", "platform-error"), ("TimeoutError", "error-internal"),
        ("KeyError('x')", "error-internal"), ("PlatformRestrictedError('x')", "platform-restricted"),
        ("SystemExit(3)", "platform-error"), ("PlatformRestrictedError('x', item=5)", "platform-error"),
        ("FilesetPlatformScopeError('x', members=['a', None])", "platform-scope"),
    ],
)  # fmt: skip
def test_what_a_helper_raises_ends_its_own_request_only(
    install: Callable[..., None], platform: Platform, folder: Path, raised: str, status: str
) -> None:
    install(f"""
def item(*args, **kwargs):
    from archec.errors import NotHeld, StorageFull
    from archec.fileset import FilesetPlatformScopeError, PlatformRestrictedError
    raise {raised}
ShelfHelper.item = item
""")
    found = shelf(folder, platform).ingest(f"{platform.url}/books/7", f"{platform.url}/none")
    assert [one.status for one in found] == [status, "platform-404"]


def test_a_helper_that_hangs_ends_with_the_second_signal(
    install: Callable[..., None], platform: Platform, folder: Path, tmp_path: Path
) -> None:
    install("""
import signal
def questions(*args, **kwargs):
    before = signal.getsignal(signal.SIGTERM)
    print("here", flush=True)
    while signal.getsignal(signal.SIGTERM) == before:
        pass
    print("still here", flush=True)
    while True:
        pass
    yield
ShelfHelper.questions = questions
""")
    filesets = shelf(folder, platform)
    command = [sys.executable, "-m", "archec", "fileset", "ingest", f"{platform.url}/books/7"]
    command += ["--config", str(filesets.config.file)]
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        last = threading.Timer(60, process.kill)
        last.start()
        assert process.stdout is not None
        for said in ("here\n", "still here\n"):
            assert process.stdout.readline() == said
            process.send_signal(signal.SIGTERM)
        process.wait()
        last.cancel()
    assert process.returncode == Exit.INTERRUPTED
    assert archec_inline(filesets.config, "check").code == 0


@pytest.mark.parametrize("named", ["id_in", "domain"])
def test_what_a_helper_says_of_a_failed_request_cannot_damage_the_journal(
    install: Callable[..., None], platform: Platform, folder: Path, named: str
) -> None:
    install(f"ShelfHelper.{named} = lambda *args: 5\n")
    filesets = shelf(folder, platform)
    (result,) = filesets.ingest(f"{platform.url}/none")
    assert (result.status, "ValidationError: Expected `str`" in (result.message or "")) == ("error-internal", True)
    for command in (("check",), ("fileset", "list", "--all")):
        assert archec_inline(filesets.config, *command).code == 0
    (filesets.config.base / "data").joinpath("catalogue.sqlite").unlink()
    assert archec_inline(filesets.config, "rebuild").code == 0


def test_a_url_that_a_helper_fails_to_read_is_an_error_with_its_name(
    install: Callable[..., None], platform: Platform, folder: Path
) -> None:
    install("ShelfHelper.id_in = lambda *args: {}['x']\n")
    done = archec_inline(shelf(folder, platform).config, "fileset", "show", f"{platform.url}/books/7")
    assert (done.code, "the helper for shelf fails: KeyError: 'x'" in done.err) == (1, True), done


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("name = 'zenodo'", "another one with the name zenodo"), ("name = 'direct'", "another one"),
        ("name = 'Shelf'", "lower-case"), ("name = ''", "lower-case"), ("name = None", "lower-case"),
        ("questions = FilesetPlatformHelper.questions", "no method questions"),
        ("__init__ = lambda self, *args: {}['x']", "cannot be set up: KeyError: 'x'"),
        ("__init__ = lambda self, *args: None", "cannot be set up: AttributeError"),
        ("name = {}['x']", "cannot be loaded: KeyError: 'x'"), ("name = exit(4)", "cannot be loaded: SystemExit: 4"),
    ],
)  # fmt: skip
def test_a_helper_that_cannot_be_one_is_refused(
    install: Callable[..., None], platform: Platform, folder: Path, more: str, message: str
) -> None:
    install(f"ShelfHelper.{more}\n")
    with pytest.raises(ConfigError, match=message):
        shelf(folder, platform).ingest(f"{platform.url}/books/7")
