"""The text of a PDF, page by page, with pypdfium2 (PDFium).

Run in a worker only: PDFium is native code that reads hostile files.
"""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pypdfium2.raw as pdfium

from archec.text.normalise import TextDigest
from archec.text.result import NoText

__all__ = ["digest_pdf"]

_FAR = 1e6
"""Beyond any page, in points: text outside of the page's box is text of the file too."""


def digest_pdf(source: Path | bytes, digest: TextDigest) -> None:
    """Feeds the text of all pages to ``digest``.

    Raises NoText: ``encrypted``, ``damaged`` (also where one page is), and ``partial`` where a page
    shows something and has no text. A scan behind a cover page may change while its text does not,
    so such a file's text does not stand for the file.
    """
    try:
        document = pypdfium2.PdfDocument(source)
    except pypdfium2.PdfiumError as error:
        raise NoText("encrypted" if pdfium.FPDF_GetLastError() == pdfium.FPDF_ERR_PASSWORD else "damaged") from error
    textless = 0
    try:
        for number in range(len(document)):
            textless += not _page(document, number, digest)
    except pypdfium2.PdfiumError as error:
        raise NoText("damaged") from error
    finally:
        document.close()
    if textless and digest.md5() is not None:
        raise NoText("partial")


def _page(document: pypdfium2.PdfDocument, number: int, digest: TextDigest) -> bool:
    """Feeds one page; False where it shows something but no text."""
    page = document[number]
    try:
        layer = page.get_textpage()
        try:
            text = layer.get_text_bounded(-_FAR, -_FAR, _FAR, _FAR)
        finally:
            layer.close()
        digest.feed(text)
        digest.cut()
        return bool(text.strip()) or pdfium.FPDFPage_CountObjects(page) == 0
    finally:
        page.close()
