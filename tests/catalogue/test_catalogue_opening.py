"""Catalogue URLs: which engine they mean, what is refused, what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import redact
from archec.errors import ArchecError, CatalogueGone, ConfigError

SECRETS = (
    "mongodb://user:s3cret@127.0.0.1:1/db",
    "mongodb://user:s3cret@127.0.0.1:1/db?authSource=admin&w=0",
    "mongodb://user:s3cret/x@127.0.0.1:1/db",
    "mongodb://s3cret:1234/x@127.0.0.1:1/db",
    "mongodb://user:x@s3cret@127.0.0.1:1/db",
    "mongodb://user:s3cret:y@127.0.0.1:1/db",
    "mongodb://s3cret@127.0.0.1:notaport/db",
    "mongodb://user:%zzs3cret@127.0.0.1:1/db",
    "mongodb://127.0.0.1:1/db?tls=true&tlsCertificateKeyFilePassword=s3cret&x=1",
    "mongodb://127.0.0.1:1/db?proxyHost=h&proxyPassword=s3cret",
    "mongodb+srv://user:s3cret@nowhere.invalid/db",
    "mongodb+srv://user:s3cret@/db",
    "mongodb://user:s3cret@[::1/db",
    "mysql://user:s3cret@127.0.0.1/db",
    "user:s3cret@127.0.0.1//x@y",
    "sqlite://user:s3cret@host/",
)


@pytest.mark.parametrize("url", SECRETS)
def test_no_error_shows_a_password(url: str, tmp_path: Path) -> None:
    url = url.replace("?", "?serverSelectionTimeoutMS=50&") if "?" in url else url + "?serverSelectionTimeoutMS=50"
    with pytest.raises(ArchecError) as caught:
        open_catalogue(url, base=tmp_path, create=True)
    error: BaseException | None = caught.value
    assert "s3cret" not in str(caught.value)
    while error is not None:
        assert "s3cret" not in repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("authSuorce=admin", "Unknown option"),
        ("connectTimeoutMS=soon", "connecttimeoutms"),
        ("tls=true&tlsCAFile=/nowhere/ca.pem", "not readable"),
        ("tls=true&tlsCAFile=/dev/null", "certificate"),
    ],
)
def test_what_is_wrong_with_the_options_of_a_url_with_a_password(options: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"MongoDB URL: .*{told}") as caught:
        open_catalogue(f"mongodb://user:s3cret@127.0.0.1:1/db?{options}", base=tmp_path)
    assert "s3cret" not in str(caught.value)


def test_redact() -> None:
    assert redact("mongodb:u:p@h/d") == "***@h/d"
    assert redact("mongodb://u:p@h:1,i:2/d?x=1") == "mongodb://***@h:1,i:2/d?x=1"
    assert redact("mongodb://h/d?tlsCertificateKeyFilePassword=p&w=1") == (
        "mongodb://h/d?tlsCertificateKeyFilePassword=***&w=1"
    )
    assert redact("sqlite:///data/catalogue.sqlite") == "sqlite:///data/catalogue.sqlite"


def test_a_relative_path_is_relative_to_the_base(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    open_catalogue("sqlite:///data/c.sqlite", base=tmp_path, create=True).close()
    assert (tmp_path / "data" / "c.sqlite").exists()
    open_catalogue(f"sqlite:///{tmp_path}/data/c.sqlite", base=Path("/nowhere")).close()


@pytest.mark.parametrize(
    "url",
    ["", "x", "sqlite", "sqlite:", "sqlite://c", "sqlite:///", "sqlite:///a/", "sqlite:///a\0b", "postgres://h/d"],
)
def test_other_urls_are_refused_with_what_is_allowed(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_catalogue(url, base=tmp_path, create=True)
    assert "sqlite:///PATH" in caught.value.hint
    assert "mongodb://HOST" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_said_at_once(tmp_path: Path) -> None:
    url = "mongodb://127.0.0.1:1/archec?serverSelectionTimeoutMS=50"
    with pytest.raises(CatalogueGone, match=r"127\.0\.0\.1:1/archec.*no MongoDB server answers") as caught:
        open_catalogue(url, base=tmp_path)
    assert "mongod is running" in caught.value.hint
