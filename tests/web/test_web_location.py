"""Where a redirect leads: every sloppiness that the URL standard names, and that what comes out can be normalised."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archec.errors import BadName
from archec.ids import normalise_url
from archec.web.location import location_of

BASE = "http://h.org:81/a/b?q"


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        # blanks, tabs, line ends
        ("/Working Papers/2024 01.pdf", "http://h.org:81/Working%20Papers/2024%2001.pdf"),
        ("  /x \x00\x1f", "http://h.org:81/x"),
        ("ht\ttp://g.org/a\r\nb", "http://g.org/ab"),
        ("/a\x01b\x7f", "http://h.org:81/a%01b%7F"),
        ("\xa0/x", "http://h.org:81/a/%A0/x"),
        # slashes
        ("\\x\\y", "http://h.org:81/x/y"),
        ("x\\..\\y", "http://h.org:81/a/y"),
        ("\\\\g.org\\x", "http://g.org/x"),
        ("/\\g.org", "http://g.org/"),
        ("///g.org/x", "http://g.org/x"),
        ("////\\/g.org//x", "http://g.org//x"),
        ("http:///g.org/x", "http://g.org/x"),
        ("http:\\\\g.org\\x", "http://g.org/x"),
        ("https:/g.org/x", "https://g.org/x"),
        ("https:g.org/x", "https://g.org/x"),
        ("http:/x", "http://h.org:81/x"),
        ("http:x", "http://h.org:81/a/x"),
        ("HTTP:x", "http://h.org:81/a/x"),
        ("http://g.org?x", "http://g.org/?x"),
        ("http://g.org#x", "http://g.org/"),
        ("http://g.org\\@h.org/", "http://g.org/@h.org/"),
        ("/x?a\\b", "http://h.org:81/x?a%5Cb"),
        # dot segments
        ("../x", "http://h.org:81/x"),
        ("../../../x", "http://h.org:81/x"),
        (".", "http://h.org:81/a/"),
        ("..", "http://h.org:81/"),
        ("/x/%2e%2E/y", "http://h.org:81/y"),
        ("/x/.%2e", "http://h.org:81/"),
        ("/x/./", "http://h.org:81/x/"),
        ("/x/.../y", "http://h.org:81/x/.../y"),
        # relative forms
        ("", "http://h.org:81/a/b?q"),
        ("#f", "http://h.org:81/a/b?q"),
        ("?z", "http://h.org:81/a/b?z"),
        ("?", "http://h.org:81/a/b?"),
        ("x?y#z", "http://h.org:81/a/x?y"),
        ("x:y/z", None),
        ("./x:y", "http://h.org:81/a/x:y"),
        ("//g.org", "http://g.org/"),
        # escapes: what stands is kept, what does not belong is escaped
        ("/a%zz%", "http://h.org:81/a%25zz%25"),
        ("/a%2Fb", "http://h.org:81/a%2Fb"),
        ('/"<>`{}^|', "http://h.org:81/%22%3C%3E%60%7B%7D%5E%7C"),
        ("/x?\"<>'`{}|", "http://h.org:81/x?%22%3C%3E%27%60%7B%7D%7C"),
        ("/x?a b", "http://h.org:81/x?a%20b"),
        # bytes that are not ASCII stay what they are
        ("/\xe9.pdf", "http://h.org:81/%E9.pdf"),
        ("/\xc3\xa9.pdf?\xc3\xa9", "http://h.org:81/%C3%A9.pdf?%C3%A9"),
        ("/%C3\xa9", "http://h.org:81/%C3%A9"),
        # authorities
        ("http://u:p@g.org/x", "http://g.org/x"),
        ("http://u@p@g.org/x", "http://g.org/x"),
        ("http://u:p@/x", None),
        ("http://G.ORG/x", "http://g.org/x"),
        ("http://%67.org/x", "http://g.org/x"),
        ("http://b\xc3\xbccher.example/", "http://xn--bcher-kva.example/"),
        ("http://\xff.org/", None),
        ("http://g.org./x", "http://g.org./x"),
        ("http://a b/", None),
        ("http://a%20b/", None),
        ("http://a<b/", None),
        ("http://a^b/", None),
        ("http://a%00b/", None),
        ("http://a%2Fb/", None),
        ("http://", None),
        ("https:", None),
        ("http:?x", "http://h.org:81/a/b?x"),
        # ports
        ("http://g.org:80/x", "http://g.org/x"),
        ("http://g.org:0080/x", "http://g.org/x"),
        ("http://g.org:/x", "http://g.org/x"),
        ("http://g.org:443/x", "http://g.org:443/x"),
        ("https://g.org:443/x", "https://g.org/x"),
        ("http://g.org:0/x", "http://g.org:0/x"),
        ("http://g.org:65535/x", "http://g.org:65535/x"),
        ("http://g.org:65536/x", None),
        ("http://g.org:8a/x", None),
        ("http://g.org:\u00b2/x", None),
        # addresses
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0177.0.0.01/", "http://127.0.0.1/"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
        ("http://1.2.3.4.5/", None),
        ("http://256.1.1.1/", None),
        ("http://1.2.3.09/", None),
        ("http://a.1/", None),
        ("http://a.0x/", None),
        ("http://10x.1/", None),
        ("http://1.0x/", "http://1.0.0.0/"),
        ("http://4294967296/", None),
        ("http://[::1]:81/x", "http://[::1]:81/x"),
        ("http://[::1/x", None),
        # schemes
        ("https://g.org", "https://g.org/"),
        ("ftp://g.org:21/x", "ftp://g.org/x"),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("mailto:a@b", None),
        ("data:,x", None),
    ],
)
def test_a_location_is_read_as_browsers_read_it(location: str, leads_to: str | None) -> None:
    if leads_to is None:
        with pytest.raises(BadName):
            location_of(BASE, location)
    else:
        assert location_of(BASE, location) == leads_to


@given(st.text(st.characters(max_codepoint=255)))
def test_a_location_leads_to_a_normalised_url_or_is_refused(location: str) -> None:
    with suppress(BadName):
        found = location_of(BASE, location)
        assert found == normalise_url(found) == location_of(BASE, found)
