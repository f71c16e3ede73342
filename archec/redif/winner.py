"""Which of several templates of one handle counts in a data set (design, section 4). A pure rule.

It never depends on the order in which a tarball happens to list its files.
"""

from __future__ import annotations


def rank(own: int, path: bytes, member: int, number: int) -> tuple[int, bytes, int, int]:
    """The key by which templates of one handle are compared: the greatest wins.

    ``own`` is 1 if the file lies in the directory of the handle's archive and series
    (:func:`archec.redif.handles.own`), else 0; then the greatest path in byte order counts, then the last ``member`` of
    a tarball that has this path, then the last template of the file by its ``number``.
    """
    return own, path, member, number
