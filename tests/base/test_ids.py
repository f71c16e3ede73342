from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archec import ids
from archec.errors import BadName
from archec.urlkey import target_uri, urlkey

hostile = st.text(st.characters(blacklist_categories=("Cs",)), max_size=400)


@given(hostile)
def test_a_handle_is_normalised_once_and_for_all(raw: str) -> None:
    try:
        handle = ids.normalise_handle(raw)
    except BadName:
        text = "".join(raw.split()).lower()
        assert text in ("", "repec:") or ids.is_url(text) or ids.is_fileset(text)
        return
    assert ids.normalise_handle(handle) == handle
    assert not any(c.isspace() for c in handle)


def test_the_id_of_a_fileset_with_bytes_that_are_no_text() -> None:
    assert ids.normalise("fileset:zenodo:x.org:a\udc80") == ("fileset", "fileset:zenodo:x.org:a%3F")


@pytest.mark.parametrize(
    ("raw", "handle"),
    [
        ("RePEc:aaa:ssssss:1", "RePEc:aaa:ssssss:1"),
        ("repec:AAA:SSSSSS:W1", "RePEc:aaa:ssssss:w1"),
        (" REPEC:aaa:ssssss:\n 12 a", "RePEc:aaa:ssssss:12a"),
        ("UCEMA:doc:1", "ucema:doc:1"),
        ("RePEc:aaa:ssssss:i:\u2013/x\0y", "RePEc:aaa:ssssss:i:\u2013/x\0y"),
    ],
)
def test_handles(raw: str, handle: str) -> None:
    assert ids.normalise_handle(raw) == handle


@pytest.mark.parametrize("raw", ["http://a.b/c", "HTTPS://A.B/", "ftp:x", " ht\ntp://a.b/c"])
def test_a_url_is_no_handle(raw: str) -> None:
    with pytest.raises(BadName, match="is a URL"):
        ids.normalise_handle(raw)


def test_the_parts_of_a_handle() -> None:
    assert [f("RePEc:aaa:ssssss:x:y") for f in (ids.archive_of, ids.series_of, ids.item_of)] == ["aaa", "ssssss", "x:y"]
    assert [f("RePEc:aaa") for f in (ids.archive_of, ids.series_of, ids.item_of)] == ["aaa", "", ""]
    assert [f("oai:aaa:b:c") for f in (ids.archive_of, ids.series_of, ids.item_of)] == ["", "", ""]


@pytest.mark.parametrize(
    ("raw", "url"),
    [
        ("http://openlib.org", "http://openlib.org/"),
        ("HTTP://WWW.Ex.ORG:80/a/../b/./c?x= y#f", "http://www.ex.org/b/c?x=y"),
        ("https://ex.org:443/", "https://ex.org/"),
        ("ftp://ex.org:21/pub/x.ps", "ftp://ex.org/pub/x.ps"),
        ("http://ex.org:8080/x", "http://ex.org:8080/x"),
        ("http://ex.org:080/x", "http://ex.org/x"),
        ("http://ex.org:0443/x", "http://ex.org:443/x"),
        (f"http://{'a' * 63}:59999/x", f"http://{'a' * 63}:59999/x"),
        ("http://ex.org:65535/x", "http://ex.org:65535/x"),
        ("https://ex.org/Górski.pdf", "https://ex.org/G%C3%B3rski.pdf"),
        ("http://bücher.de/%7ea%2f%zz", "http://xn--bcher-kva.de/~a%2F%25zz"),
        ("http://ex.org/a%2e%2e/%2e%2e/b", "http://ex.org/b"),
        ("http://ex.org/../../x", "http://ex.org/x"),
        ("http://ex.org/a/..", "http://ex.org/"),
        ("http://u:secret@ex.org/x", "http://ex.org/x"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("http://ex.org/a\n  b.pdf", "http://ex.org/ab.pdf"),
        ("http://ex.org/?q=a|b&c=d", "http://ex.org/?q=a%7Cb&c=d"),
        ("http://ex.org?x", "http://ex.org/?x"),
    ],
)
def test_urls(raw: str, url: str) -> None:
    assert ids.normalise_url(raw) == url


@pytest.mark.parametrize(
    "raw",
    [
        "file:///C:/x", "hhttp://a/", "www.ex.org/x", "http:///x", "http://a:99999/", "http://a:b/", "", "http:",
        "//x/", "http://a:99999/x", f"http://{'a' * 64}:8080/x",
        "mailto:a@b", "http://[::1/", "http://a..b/", "http://" + "a" * 64 + "/x", "http://" + "a." * 200 + "de/x/y",
        "javascript:alert(1)", "http://%ff/",
    ],
)  # fmt: skip
def test_bad_urls(raw: str) -> None:
    with pytest.raises(BadName):
        ids.normalise_url(raw)


def test_a_password_is_never_shown() -> None:
    for raw in ("file://u:secret@h/x", "http://u:secret@h:99999/", "http://u:secret@a..b/"):
        with pytest.raises(BadName) as caught:
            ids.normalise_url(raw)
        assert "secret" not in str(caught.value)
    assert ids.without_userinfo("http://u:secret@h/a@b") == "http://h/a@b"


urlish = st.one_of(
    hostile,
    st.builds(
        "{}://{}{}{}".format,
        st.sampled_from(["http", "HTTPS", "ftp", "file"]),
        st.text("aB1.-_é:@[]%", max_size=12),
        st.text("/.%2eEfFgé~ ;:@?#", max_size=30),
        hostile,
    ),
)


@given(urlish)
@example("HTTP://0//")
@example("HTTP://0///")
@example("http://h/a//")
@example("http://h/a/")
def test_url_normalisation_is_idempotent_and_stays_in_the_grammar(raw: str) -> None:
    try:
        url = ids.normalise_url(raw)
    except BadName:
        return
    assert ids.normalise_url(url) == url
    assert url.isascii()
    assert "#" not in url
    assert "@" not in ids.host_of(url)
    variant = ids.slash_variant(url)
    if variant is None:
        return
    if url.endswith("//"):  # of several slashes each URL loses one, down to http://host/, which stands for itself
        assert ids.slash_variant(variant) == (variant[:-1] if variant.count("/") > 3 else None)
    else:
        assert ids.slash_variant(variant) == url


def test_perls_own_escaping_gives_the_same() -> None:
    perl = shutil.which("perl")
    if perl is None or subprocess.run([perl, "-MURI::Escape", "-e1"], capture_output=True, check=False).returncode:
        pytest.skip("no Perl with URI::Escape here (Debian: liburi-perl)")
    samples = ["http://openlib.org/home/krichel/", "RePEc:aaa:s:i:\u2013/x", "a b+c~d!e*f'g(h)i", "\U0001f600\x7f\x01"]
    program = 'binmode STDIN, ":utf8"; while (<STDIN>) { chomp; print uri_escape_utf8($_), "\\n" }'
    result = subprocess.run(
        [perl, "-MURI::Escape", "-e", program], input="\n".join(samples), capture_output=True, text=True, check=True
    )
    assert result.stdout.split("\n")[: len(samples)] == [ids.escape(sample) for sample in samples]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (" <http://h/x> ", "http://h/x"), ("<URL:http://h/x>", "http://h/x"), ("url: http://h/x", "http://h/x"),
        ("RePEc%3Aaaa%3As%3A1", "RePEc:aaa:s:1"), ("http%3A%2F%2Fh%2Fa%2520b", "http://h/a%20b"),
        ("345/012/9871/RePEc%3Aaaa%3As%3A1", "RePEc:aaa:s:1"), ("archive/345/012/9871/0f/http%3A%2F%2Fh", "http://h"),
        ("fileset%3Azenodo%3Azenodo.org%3A1", "fileset:zenodo:zenodo.org:1"), ("345/012/9871/x", "345/012/9871/x"),
        ("http://h/345/012/9871/RePEc%3Aa", "http://h/345/012/9871/RePEc%3Aa"),
        ("http://h/a%3Ab", "http://h/a%3Ab"), ("RePEc:aaa:s:%3A", "RePEc:aaa:s:%3A"), ("RePEc%3A%zz", "RePEc%3A%zz"),
        ("<", "<"), ("", ""),
    ],
)  # fmt: skip
def test_an_id_as_it_is_typed(raw: str, text: str) -> None:
    assert ids.typed(raw) == text


# -- keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.nber.org/", "org,nber)/"),
        ("https://www2.nber.org/A/B.PDF?b=2&a=1&A=3", "org,nber)/a/b.pdf?a=1&a=3&b=2"),
        ("http://a.b/x/", "b,a)/x"),
        ("http://a.b/?", "b,a)/"),
        ("ftp://ftp.b/x//y.pdf", "b,ftp)/x/y.pdf"),
        ("http://h:8080/a;x=1?x", "h:8080)/a;x=1?x"),
        ("http://a.b/%257Efoo/%20x%2Fy%E4", "b,a)/~foo/%20x/y%e4"),
        ("http://127.0.0.1:8080/x", "1,0,0,127:8080)/x"),
        ("http://[::1]:81/a", "::1:81)/a"),
        ("http://a.b/x?PHPSESSID=0123456789abcdef0123456789abcdef&z=1", "b,a)/x?z=1"),
        ("http://a.b/x?sid=0123456789abcdef0123456789abcdef", "b,a)/x"),
        ("http://a.b/x?sid=short", "b,a)/x?sid=short"),
    ],
)
def test_keys_of_urls(url: str, key: str) -> None:
    assert urlkey(ids.normalise_url(url)) == key


@given(st.text(max_size=60), st.sampled_from(["http://h/", "https://www.x.de/a?", "RePEc:", "other:"]))
def test_keys_and_uris_are_printable_and_need_no_escapes_in_json(text: str, start: str) -> None:
    try:
        obi = ids.normalise_url(start + text) if "//" in start else ids.normalise_handle(start + text)
    except BadName:
        return
    uri = target_uri(obi)
    for shown in (uri, urlkey(uri)):
        assert shown.isascii()
        assert shown.isprintable()
        assert " " not in shown
    assert '"' not in uri
    assert "\\" not in uri


def test_uris_of_handles() -> None:
    assert target_uri("RePEc:aaa:sss:1") == "urn:x-repec:aaa:sss:1"
    assert target_uri("aaa:http://x") == "urn:x-redif:aaa:http://x"
    assert target_uri("RePEc:ü:%") == "urn:x-repec:%C3%BC:%25"
