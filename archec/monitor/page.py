"""An HTML page about an archive and one of its runs: a single file without scripts and external resources.

:func:`_e` escapes all text from outside.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from msgspec import to_builtins

from archec import __version__
from archec.archive.report import HostFigures
from archec.audit.last_checked import Fixity
from archec.monitor.plots import KINDS, Series, coverage_plot, growth_plot, hosts_plot, incidences_plot
from archec.monitor.runs import SHOWN, RunView
from archec.monitor.status import PendingLosses
from archec.report.changes import Incident
from archec.report.coverage import COLUMNS, CoverageRow
from archec.tist import iso
from archec.units import human_duration, human_size, listed

_MOST_ROWS = 200
_RIGHT = ' class="n"'
_HYPHENED = re.compile(r"[^\s/]{1,30}-[^\s/]{1,30}")
_WHOLE = r'<span class="w">\g<0></span>'
_MOST_BARS = 30
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { overflow-wrap: break-word; }
table { border-collapse: collapse; margin: .5rem 0 1rem; }
th, td { padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
tbody th { font-weight: normal; white-space: nowrap; } .w { white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.wide, figure { overflow-x: auto; } figure { margin: 1rem 0; }
figure svg { width: 100%; min-width: 36rem; max-width: 54rem; height: auto; } figcaption, .small { color: #666; }
@media print {
  body { font-size: 9pt; max-width: none; margin: 0; padding: 0; }
  figure svg { min-width: 0; } .wide, figure { overflow: visible; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
  th, td { padding-right: .4rem; overflow-wrap: break-word; }
}
"""


@dataclass(frozen=True, slots=True)
class Account:
    """The contents of a page: the archive ``name`` at the tist ``now``, one run, and all runs up to it. ``held_back``
    are the losses that currently await a decision, ``lost`` are the first losses of the run, ``fixity`` is the record
    of checks, ``filesets`` are the totals of all filesets."""

    name: str
    now: int
    run: RunView
    series: Series
    coverage: tuple[CoverageRow, ...]
    held_back: tuple[PendingLosses, ...] = ()
    lost: tuple[Incident, ...] = ()
    fixity: Fixity = field(default_factory=Fixity)
    filesets: CoverageRow | None = None

    @property
    def hosts(self) -> tuple[HostFigures, ...]:
        """The hosts in trouble and the largest ones, each once."""
        hosts = self.run.figures.hosts
        return tuple({item.host: item for item in (*hosts.trouble, *hosts.largest)}.values())

    def as_value(self) -> dict[str, Any]:
        """As JSON values: the contents of the page, and more."""
        return {
            "name": self.name,
            "time": iso(self.now),
            "run": self.run.as_value(whole=True),
            **self.series.as_value(),
            "hosts": to_builtins(self.hosts),
            "coverage": [asdict(row) for row in self.coverage],
            "filesets": asdict(self.filesets) if self.filesets is not None else None,
            "held_back": [asdict(item) for item in self.held_back],
            "lost": [asdict(item) for item in self.lost],
            "fixity": self.fixity.as_value(),
        }


def page(account: Account) -> str:
    title = f"{_e(account.name)}: run {account.run.run}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>\n"
        f"<h1>{title}</h1>\n" + "\n".join(_sections(account)) + "\n</main></body></html>\n"
    )


def _sections(account: Account) -> Iterator[str]:
    yield from _run(account.run)
    bins = account.series.incidences
    if bins:
        yield "<h2>Incidences over time</h2>"
        caption = "Templates by the date of their data set, files by that of their run."
        yield _figure(incidences_plot(bins), caption)
        rows = (
            (_day(item.start), *(item.tobis[k] for k in KINDS), *(item.fobis[k] for k in KINDS))
            for item in reversed(bins)
            if item.tobis.total() + item.fobis.total()
        )
        head = ("from", *(f"templates {k}" for k in KINDS), *(f"files {k}" for k in KINDS))
        yield _table(head, rows)
    if account.series.growth:
        yield "<h2>Size</h2>"
        yield _figure(growth_plot(account.series.growth), "What all runs have written, and what is held.")
        yield _table(
            ("run", "stored", "templates held", "files held"),
            ((p.run, human_size(p.stored_bytes), p.tobis_held, p.fobis_held) for p in account.series.growth[::-1]),
        )
    yield from _lost(account)
    yield from _hosts(account)
    if account.held_back:
        yield "<h2>Losses that await a decision</h2>"
        rows = ((item.run, item.archive, item.losses) for item in account.held_back)
        yield _table(("run", "archive or host", "losses"), rows)
    yield from _fixity(account.fixity)
    yield "<h2>Coverage by archive</h2>"
    if account.coverage:
        shown = account.coverage[:_MOST_BARS]
        caption = f"Archives with the most works: {len(shown)} of {len(account.coverage)}."
        yield _figure(coverage_plot(shown), caption)
    rows_of = [(row.archive, row) for row in account.coverage]
    if account.filesets is not None and account.filesets.works:
        rows_of.append(("filesets", account.filesets))
    if rows_of:
        yield _table(
            ("archive", *(label for label, _ in COLUMNS)),
            ((name, *(getattr(row, field) for _, field in COLUMNS)) for name, row in rows_of),
        )
    else:
        yield "<p>No works are held.</p>"
    yield f'<p class="small">Made by archec {_e(__version__)} at {iso(account.now)}.</p>'


def _run(run: RunView) -> Iterator[str]:
    took = human_duration(run.seconds) if run.seconds is not None else "unknown"
    rows: list[tuple[object, object]] = [
        ("run", f"{run.run}, {iso(run.run)}"),
        ("state", f"{run.state}: {SHOWN[run.state]}"),
        ("data set", f"{run.source}, as of {_day(run.data_set)}") if run.data_set else ("kind", run.kind),
        ("took", took),
        ("templates", listed(run.figures.tobis)),
        ("files", listed(run.figures.fobis)),
        ("stored", human_size(run.figures.stored_bytes)),
        ("held back", ", ".join(f"{losses:,} of {of}" for of, losses in run.figures.held_back.items()) or "none"),
        ("problems", f"{run.problems:,}"),
    ]
    if run.message:
        rows.append(("message", run.message))
    yield _table(("", ""), rows)
    problems = run.figures.problems.first
    if problems:
        yield "<details><summary>Problems in the data set</summary>"
        yield _table(
            ("path", "line", "code", "message"),
            ((problem.path, problem.line, problem.code, problem.message) for problem in problems),
        )
        yield "</details>"


def _fixity(fixity: Fixity) -> Iterator[str]:
    yield "<h2>Fixity</h2>"
    whole = fixity.whole
    rows: list[tuple[object, ...]] = [
        (name, some.objects, f"{some.objects / whole.objects:.1%}" if whole.objects else "", human_size(some.bytes))
        for name, some in (
            *((f"within {days} days", some) for days, some in fixity.within), ("never", fixity.never), ("all", whole)
        )
    ]  # fmt: skip
    yield _table(("checked", "objects", "share", "size"), rows)
    yield f"<p>Entries known to be bad: {fixity.bad:,}. Journals not included yet: {fixity.uncounted:,}.</p>"


def _lost(account: Account) -> Iterator[str]:
    yield "<h2>Lost in this run</h2>"
    if not account.lost:
        yield "<p>Nothing was lost.</p>"
        return
    noted = account.run.figures.tobis.get("lost", 0) + account.run.figures.fobis.get("lost", 0)
    rows = ((one.handle or one.id, one.title, one.reason, _day(one.tist)) for one in account.lost)
    yield _table(("template or file", "title", "reason", "lost"), rows)
    if noted > len(account.lost):
        yield f'<p class="small">Of {noted:,} in all; archec changes --since {account.run.run} lists them.</p>'


def _hosts(account: Account) -> Iterator[str]:
    yield "<h2>Hosts by outcome</h2>"
    hosts = account.hosts
    if not hosts:
        yield "<p>This run visited no files.</p>"
        return
    totals = account.run.figures.hosts
    yield _figure(
        hosts_plot(hosts[:_MOST_BARS]),
        f"Hosts visited: {totals.visited:,}; in trouble: {totals.in_trouble:,}. "
        "Those in trouble come first, then the largest.",
    )
    yield _table(
        ("host", "visits", "deferred", "outcomes"), ((h.host, h.visits, h.deferred, listed(h.outcomes)) for h in hosts)
    )


def _figure(svg: str, caption: str) -> str:
    picture = svg.replace("<svg ", f'<svg role="img" aria-label="{_e(caption)}" ', 1)
    return f'<figure tabindex="0">{picture}<figcaption>{_e(caption)}</figcaption></figure>'


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines, listed = ['<div class="wide" tabindex="0"><table>'], list(rows)
    if any(head):
        numbers = [_is_number(cell) for cell in listed[0][1:]] if listed else []
        titles = "".join(
            f'<th scope="col"{number * _RIGHT}>{_e(cell)}</th>'
            for cell, number in zip(head, [False, *numbers], strict=False)
        )
        lines.append(f"<thead><tr>{titles}</tr></thead>")
    lines.append("<tbody>")
    for first, *others in listed[:_MOST_ROWS]:
        cells = "".join(_cell(cell) for cell in others)
        lines.append(f'<tr><th scope="row">{_e("" if first is None else first)}</th>{cells}</tr>')
    more = len(listed) - _MOST_ROWS
    lines.append("</tbody></table></div>")
    if more > 0:
        lines.append(f'<p class="small">And {more:,} more rows.</p>')
    return "\n".join(lines)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if isinstance(value, int) and _is_number(value):
        return f"<td{_RIGHT}>{value if value > 10**9 else f'{value:,}'}</td>"
    # Browsers would break dates and words such as not-modified after a hyphen.
    return f"<td>{_HYPHENED.sub(_WHOLE, _e('' if value is None else value))}</td>"


def _day(tist: int) -> str:
    return iso(tist)[:10] if tist else ""


def _e(text: object) -> str:
    """Escaped text: control characters replaced, HTML special characters escaped."""
    return html.escape(_CONTROLS.sub("\ufffd", str(text)))
