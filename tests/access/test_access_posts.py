"""The key of a request with a body. The expected ones are those of pywb 2.10; test_access_pywb.py compares more."""

from __future__ import annotations

import io
import json

import pytest

from archec.access.posts import Asked, PostedBody, key_of_request

FORM = b"""--xx
Content-Disposition: form-data; name="a"

one two
--xx
Content-Disposition: form-data; name="f"; filename="x"

\xff

--xx
Content-Disposition: form-data; name="q\\"q"
Content-Transfer-Encoding: base64

YWJj
--xx--
"""
JSON = json.dumps({"a": [1, 2.0, 2.5, True, None, {"a": "x", "b": []}], "a.2_": "k", "": 3})
URLENCODED = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("kind", "body", "key"),
    [
        (URLENCODED, b"b=two+words&a=1&c=%26d", "__wb_method=post&a=1&b=two%20words&c=&d"),
        (URLENCODED, b"\xff", "__wb_method=post&__wb_post_data=/w=="),
        (URLENCODED, b"a=x%0ay%23z", "__wb_method=post&a=xy"),
        ("", b"a=1", "__wb_method=post&__wb_post_data=yt0x"),
        ("text/plain", b"hi", "__wb_method=post&__wb_post_data=agk="),
        ("text/plain;charset=UTF-8", b'{"a": 1}', "__wb_method=post&a=1"),
        ("application/json", b"hi", "__wb_method=post"),
        (
            "application/json",
            JSON.encode(),
            "__wb_method=post&a=1&a.2_=2&a.2_.2_=k&a.3_=2.5&a.4_=true&a.5_=null&a.6_=x",
        ),
        ("multipart/form-data; boundary=xx", FORM, '__wb_method=post&a=one+two&f=%ff%0a&q"q=ywjj'),
        ("multipart/form-data", b"x", "__wb_method=post&__wb_post_data=ea=="),
    ],
)
def test_a_request_with_a_body_has_the_key_that_pywb_makes(kind: str, body: bytes, key: str) -> None:
    asked = Asked("POST", (("Content-Type", kind),) if kind else (), PostedBody(io.BytesIO(body)))
    assert key_of_request("http://p.org/", asked) == f"org,p)/?{key}"
    assert key_of_request("http://p.org/", asked._replace(method="DELETE")) == "org,p)/?__wb_method=delete"
    assert key_of_request("http://p.org/", asked._replace(method="HEAD")) == ""


def test_a_key_is_made_of_the_beginning_of_a_long_body() -> None:
    for body in ("k=" + "\u4f60" * 5000, "k=" + "x" * (5 << 20)):
        asked = Asked("POST", (("Content-Type", URLENCODED),), PostedBody(io.BytesIO(body.encode())))
        assert 4000 < len(key_of_request("http://p.org/", asked)) < 40_000
