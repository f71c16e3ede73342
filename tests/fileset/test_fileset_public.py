"""Secrets that platforms tell are kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fileset_platform import Handler, Platform, zenodo
from fileset_support import Filesets
from gather_support import archec_inline
from hypothesis import given
from hypothesis import strategies as st

from archec.cli.fileset import fileset
from archec.fileset.redaction import public_body, public_url, public_value

SECRET = "hush-hush.7+"
NAMES = ("token", "access_token", "accessToken", "csrf-token", "Signature", "X-Amz-Signature", "jsessionid", "sid",
         "client_secret", "password", "cookie", "api_key", "apikey", "X-Goog-Credential", "private_link")  # fmt: skip
PLACES = (
    '{{"a": [{{"{name}": "{secret}"}}]}}', '{{"{name}": {{"value": ["{secret}"]}}}}',
    '{{"{name}": "{secret}", "{name}": ""}}', '{{"a": {{"http://h/?{name}={secret}": 1}}}}',
    '{{"a": "<input name={name} value=\\"{secret}\\">"}}',
    '{{"a": "https:\\/\\/h\\/x?{name}={secret}"}}',
    '{{"a": "http://h/p;{name}={secret}/q?v=1"}}', '{{"a": "http://h/?u=http%3A%2F%2Fg%3F{name}%3D{secret}"}}',
    '{{"a": "{name}={secret}; Path=/"}}',
    '{{"a": "http://h/cb#state=1&{name}={secret}"}}',
    '<a href="/x?v=1&amp;{name}={secret}">', "<a href='/x;{name}={secret}?v=1'>",
    '<meta name="{name}" content="{secret}">', '<input value="{secret}" type=hidden name={name}>',
    '<script>var x = {{"{name}": "{secret}"}}</script>', "<script>{name} = '{secret}';</script>",
    '<p data-{name}="{secret}">', "Link: <http://h/x?{name}={secret}>; rel=item",
)  # fmt: skip


@given(st.sampled_from(NAMES), st.sampled_from(PLACES), st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_secret_in_any_place_of_a_body_is_cut(name: str, place: str, around: str) -> None:
    body = place.format(name=name, secret=SECRET)
    if body.startswith("<"):
        body = around + body + around
    kept = public_body(body.encode())
    assert b"hush" not in kept
    assert public_body(kept) == kept
    if place.startswith("{"):
        assert "hush" not in json.dumps(public_value(json.loads(body)))


IN_URLS = ("?{}={}", "?v=1&{}={}&w=2", ";{}={}/x?v=1", "/;a=1;{}={}", "?v=1;{}={}")


@given(st.sampled_from(NAMES), st.sampled_from(IN_URLS))
def test_a_secret_in_any_place_of_a_url_is_cut(name: str, place: str) -> None:
    url = "http://user:hush@h/p" + place.format(name, SECRET) + "#hush"
    kept = public_url(url)
    assert "hush" not in kept
    assert kept.startswith("http://h/p")
    assert public_url(kept) == kept
    assert ("v=1" in url, "w=2" in url, ";a=1" in url) == ("v=1" in kept, "w=2" in kept, ";a=1" in kept)


def test_what_may_name_a_file_is_cut_beside_a_signature_only() -> None:
    assert public_url("http://h/p;key=1?key=1&se=x&u=g%3Fkey%3D2") == "http://h/p;key=1?key=1&se=x&u=g%3Fkey%3D2"
    for signature in ("sig", "Signature", "X-Amz-Signature"):
        assert public_url(f"http://h/p;key=1?v=1&key=1&Expires=2&{signature}=x") == "http://h/p?v=1"


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":  [1.50, "x=1"], "files": {"key": "p", "size": 3}, "links": {"next": "?pageToken=7", "rel": "http://h/p#{rel}"}}',
        b'<meta name="citation_title" content="Prices"><a href="/x?page=2&v=3">A = "B"</a>\xff\x00',
        b"[" * 100_000, b"{", b"", b'{"a": NaN}', b'{"a": 1' + b"0" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_holds_no_secret_is_kept_as_it_came(body: bytes) -> None:
    assert public_body(body) == body


def test_hostile_text_costs_no_more_than_its_length() -> None:
    for piece in (b'a="', b"a='", b"token=", b"x" * 80, b"<meta ", b"%3F", b'"\\'):
        public_body(piece * (2_000_000 // len(piece)))


def test_planted_secrets_are_nowhere(filesets: Filesets, platform: Platform) -> None:
    """In JSON, headers, query, path, redirects and HTML of all that is asked for."""
    url = zenodo(platform, 7, {"p.csv": 10, "q.csv": 20})
    record = platform.bodies["/api/records/7"]
    record |= {"token": SECRET, "auth": {"accessToken": SECRET, "cookies": [{"name": "s", "value": SECRET}]}}
    record["metadata"] |= {"description": f"http://h/?access_token={SECRET}", "title": f"T http://h/;token={SECRET}"}
    record["links"] |= {"latest": f"http://h/x;jsessionid={SECRET}?sig={SECRET}", "self_html": f"{url}?token={SECRET}"}
    (first, second) = record["files"]
    first["links"]["self"] += f"?token={SECRET}"
    where = second["links"]["self"].removeprefix(platform.url)
    platform.redirects[where] = f"{platform.url}/bucket/q;token={SECRET}?Signature={SECRET}"
    platform.files[f"/bucket/q;token={SECRET}"] = platform.files[where]

    def serve(handler: Handler, data: bytes) -> None:
        headers = {"set-cookie": f"session={SECRET}", "x-token": SECRET, "link": f"<http://h/?token={SECRET}>; rel=x",
                   "content-disposition": f'attachment; filename="p"; token="{SECRET}"',
                   "content-type": f"text/csv; token={SECRET}"}  # fmt: skip
        handler.answer(200, data, **headers)

    platform.behaviours["/api/records/7/files/p.csv/content"] = serve
    platform.bodies["/records/7"] = (
        f'<html><meta name="csrf-token" content="{SECRET}"><meta name="citation_title" content="http://h/?token={SECRET}">'
        f'<form action="/x?token={SECRET}"><input name="csrf_token" value="{SECRET}"></form>'
        f'<script>window.state = {{"token": "{SECRET}"}}</script></html>'
    ).encode()
    platform.bodies["/api/records/9"] = {"id": 9, "token": SECRET, "files": f"http://h/?token={SECRET}"}
    platform.bodies[f"/page;token={SECRET}"] = b"<html></html>"
    asked = [
        url, f"{platform.url}/records/9?sig={SECRET}", f"{platform.url}/page;token={SECRET}?token={SECRET}",
    ]  # fmt: skip
    more = {"ext_ids": {"token": SECRET}, "link": f"http://h/?token={SECRET}"}
    lines = [json.dumps({"base_url": one, **more}) for one in asked]
    given = "\n".join([*lines, f'{{"base_url": "http://h/?token={SECRET}"'])
    words = ["ingest", "--requests", "-", "--config", str(filesets.config.file)]
    done = CliRunner().invoke(fileset, words, input=given)
    statuses = [json.loads(line)["status"] for line in done.stdout.splitlines()]
    assert statuses == ["success", "platform-error", "no-platform-match", "bad-request"], done.output
    assert "no-platform-match" in done.output
    assert "hush" not in done.output
    assert archec_inline(filesets.config, "export", "warc", str(filesets.config.base / "vault")).code == 0
    assert "hush" not in json.dumps(filesets.dump())
    for path in Path(filesets.config.base).rglob("*"):
        assert "hush" not in str(path)
        assert not path.is_file() or b"hush" not in path.read_bytes(), path
