"""``oai_dc``: unqualified Dublin Core, which every repository must have.

The mapping from ReDIF is the table in ``docs/oai.md``. Unknown values are omitted, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from archec.ids import archive_of, series_of
from archec.oai.formats import Context, RecordFormat
from archec.oai.items import Item
from archec.oai.xml import XSI, text
from archec.redif.template import Cluster, RawRefipo, Template
from archec.tist import iso

NAMESPACE = "http://www.openarchives.org/OAI/2.0/oai_dc/"
SCHEMA = "http://www.openarchives.org/OAI/2.0/oai_dc.xsd"
_OPEN = (
    f'<oai_dc:dc xmlns:oai_dc="{NAMESPACE}" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    f' xmlns:xsi="{XSI}" xsi:schemaLocation="{NAMESPACE} {SCHEMA}">'
)
_TYPES = {
    "ReDIF-Paper": "preprint",
    "ReDIF-Article": "article",
    "ReDIF-Book": "book",
    "ReDIF-Chapter": "bookchapter",
    "ReDIF-Software": "software",
}
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_DOI = re.compile(r"(?:doi:|(?:https?://)?(?:dx\.)?doi\.org/)?(10\.[0-9]{4,9}/\S+)", re.I)
_RELATIONS = (
    "Article-Handle", "Paper-Handle", "Book-Handle", "Chapter-Handle", "Software-Handle", "In-Book", "HasChapter"
)  # fmt: skip

_SOURCES = (
    ("Journal", ""), ("Book-Title", ""), ("Series", ""), ("Volume", "volume "), ("Issue", "issue "),
    ("Number", "number "), ("Chapter", "chapter "), ("Pages", "pages "),
)  # fmt: skip
_DESCRIPTIONS = ("Abstract", "Description", "Note")

Pair = tuple[str, str]
Values = dict[str, list[str]]


class DublinCore(RecordFormat):
    schema = SCHEMA
    namespace = NAMESPACE

    def metadata(self, item: Item, context: Context) -> str:
        pairs = _of_tobi(item, context) if item.obi.kind == "tobi" else _of_fobi(item, context)
        # Each element only once, at its first place.
        body = "".join(
            [
                f"<dc:{name}>{text(value)}</dc:{name}>"
                for name, value in dict.fromkeys(pairs)
                if value and not value.isspace()
            ]
        )
        return f"{_OPEN}{body}</oai_dc:dc>"


def _of_tobi(item: Item, context: Context) -> list[Pair]:
    template, values = item.template, item.values
    pairs: list[Pair] = [("title", template.title or item.obi.id)]
    published: list[str] = []
    provided: list[str] = []
    refipos: list[RawRefipo] = []
    for cluster in template.clusters:
        prefix = cluster.prefix
        if prefix == "Author":
            pairs.append(("creator", person(cluster)))
        elif prefix == "Editor":
            pairs.append(("contributor", person(cluster)))
        elif prefix == "Publisher":
            published.append(cluster.name)
        elif prefix == "Provider":
            provided.append(cluster.name)
        elif cluster.role == "file":
            refipos.append(cluster.refipo())
    for codes in values.get("Classification-JEL", ()):
        pairs += [("subject", code) for code in split_codes(codes)]
    for words in values.get("Keywords", ()):
        pairs += [("subject", word) for word in split_words(words)]
    pairs += _named("description", _DESCRIPTIONS, values)
    publishers = [name for name in published + provided if name]
    series = _series(template)
    if not publishers and series and template.kind == "ReDIF-Paper":
        publishers = [context.publisher(series)]
    pairs += [("publisher", name) for name in publishers]
    pairs += [("date", date) for date in _dates(values)]
    pairs.append(("type", _TYPES.get(template.kind) or template.kind.removeprefix("ReDIF-").lower()))
    pairs += [("format", refipo.format) for refipo in refipos]
    pairs += [("identifier", one) for one in _identifiers(item, refipos, context)]
    pairs.append(("source", _source(values)))
    pairs += _named("language", ("Language",), values)
    pairs += _named("relation", _RELATIONS, values)
    pairs.append(("relation", series))
    pairs += _named("rights", ("Restriction", "Copyright"), values)
    pairs += [("rights", refipo.restriction) for refipo in refipos]
    return pairs


def _named(name: str, fields: Sequence[str], values: Values) -> list[Pair]:
    """The values of these fields, in the order of the fields, as elements with one name."""
    return [(name, one) for field in fields if field in values for one in values[field]]


def _of_fobi(item: Item, context: Context) -> list[Pair]:
    url, newest, note = item.obi.id, item.obi.newest, item.obi.notes.get(item.noted)
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    return [
        ("title", name or url),
        ("format", newest.type if newest is not None else ""),
        ("type", "file"),
        ("date", iso(item.noted)[:10] if item.noted else ""),
        ("identifier", url),
        ("identifier", "" if url.startswith("http") else context.landing(item.identifier)),
        ("relation", note.target if note is not None else ""),
    ]


def person(cluster: Cluster) -> str:
    """``Last, First`` if a template has both parts of a name, otherwise the name as it is."""
    last, first = cluster.get("Name-Last"), cluster.get("Name-First")
    return f"{last}, {first}" if last and first else cluster.name


def split_codes(value: str) -> list[str]:
    """The parts of a value between white space, commas and semicolons."""
    return value.replace(",", " ").replace(";", " ").split()


def split_words(value: str) -> list[str]:
    """The parts of a value between commas and semicolons, without blanks around them."""
    return [part for part in map(str.strip, value.replace(";", ",").split(",")) if part]


def date_of(value: str) -> str:
    """``yyyy``, ``yyyy-mm`` or ``yyyy-mm-dd`` as it is, "" for anything else."""
    match = _DATE.fullmatch(value.strip())
    if match is None or not value.isascii():
        return ""
    _, month, day = match.groups()
    fits = (month is None or 1 <= int(month) <= 12) and (day is None or 1 <= int(day) <= 31)
    return match[0] if fits else ""


def _dates(values: Values) -> list[str]:
    """The date of creation, otherwise of publication, otherwise year and month; and the date of revision."""
    created = next((date for name in ("Creation-Date", "Publication-Date") if (date := _first_date(values, name))), "")
    return [created or _year_and_month(values), _first_date(values, "Revision-Date")]


def _first_date(values: Values, name: str) -> str:
    return date_of(values[name][0]) if name in values else ""


def _year_and_month(values: Values) -> str:
    year = _first_date(values, "Year")
    if len(year) != 4 or "Month" not in values:
        return year if len(year) == 4 else ""
    month = values["Month"][0].strip().lower()
    if month.isascii() and month.isdigit() and len(month) < 3:
        return date_of(f"{year}-{month:0>2}") or year
    numbers = [n for n, name in enumerate(_MONTHS, 1) if len(month) > 2 and name.startswith(month.rstrip("."))]
    return f"{year}-{numbers[0]:02d}" if len(numbers) == 1 else year


def _identifiers(item: Item, refipos: Sequence[RawRefipo], context: Context) -> list[str]:
    template, values = item.template, item.values
    found = [template.handle or item.obi.id]
    found += [refipo.url_raw for refipo in refipos]
    found += ["".join(url.split()) for url in values.get("Order-URL", ())]
    for raw in values.get("DOI", ()):
        match = _DOI.fullmatch("".join(raw.split()))
        if match is not None:
            found.append(f"https://doi.org/{match[1]}")
    for isbn in values.get("ISBN", ()):
        found.append(f"urn:isbn:{isbn}" if isbn.replace("-", "").isalnum() else isbn)
    if template.family != "work":
        found += [one for name in ("URL", "Homepage") for one in values.get(name, ())]
    if not any(one.startswith(("http://", "https://")) for one in found):
        found.append(context.landing(item.identifier))
    return found


def _source(values: Values) -> str:
    """Where a work was published, on one line."""
    return ", ".join([label + values[name][0] for name, label in _SOURCES if name in values])


def _series(template: Template) -> str:
    if template.family != "work" or template.id.count(":") < 3:
        return ""
    archive, series = archive_of(template.id), series_of(template.id)
    return f"RePEc:{archive}:{series}" if archive and series else ""
