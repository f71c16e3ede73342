"""The PDF writer: deterministic, and what it writes is read as it was meant."""

from __future__ import annotations

import pypdfium2
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.demo.papers import write_pdf


def texts(data: bytes) -> list[str]:
    document = pypdfium2.PdfDocument(data)
    try:
        found = []
        for number in range(len(document)):
            page = document[number]
            layer = page.get_textpage()
            found.append(layer.get_text_bounded())
            layer.close()
            page.close()
        return found
    finally:
        document.close()


def test_pages_and_title() -> None:
    data = write_pdf(["One\nline (and) \\ another", "", "Café – drei"], title="A (small) paper")
    assert [" ".join(text.split()) for text in texts(data)] == ["One line (and) \\ another", "", "Café – drei"]
    document = pypdfium2.PdfDocument(data)
    assert document.get_metadata_dict()["Title"] == "A (small) paper"
    assert document.get_metadata_dict()["CreationDate"] == "D:20090101000000Z"
    document.close()


def test_same_arguments_same_bytes_other_dates_other_bytes() -> None:
    assert write_pdf(["x"]) == write_pdf(["x"])
    other = write_pdf(["x"], created="D:20100101000000Z")
    assert other != write_pdf(["x"])
    assert texts(other) == texts(write_pdf(["x"]))


def test_no_pages_and_what_helvetica_cannot_show() -> None:
    assert write_pdf([]).startswith(b"%PDF-1.4\n")
    assert texts(write_pdf(["труд"])) == ["????"]


@settings(max_examples=40)
@given(st.lists(st.text(st.sampled_from("ab()\\ \n\rxyz"), max_size=200), min_size=1, max_size=3))
def test_any_text_makes_a_pdf_that_opens(pages: list[str]) -> None:
    assert len(texts(write_pdf(pages))) == len(pages)
