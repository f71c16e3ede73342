"""``amf``: the Academic Metadata Format that RePEc's own gateway offered; for tobis.

Vocabulary: amf.openlib.org, "nagano". The nouns are text, collection, person and organization. What another template
describes in full is only referred to by its handle.
"""

from __future__ import annotations

from archec.ids import archive_of, series_of
from archec.oai.dc import date_of, split_codes, split_words
from archec.oai.formats import Context, RecordFormat
from archec.oai.items import Item
from archec.oai.xml import XSI, attribute, clean, element, text
from archec.redif.template import Cluster, RawRefipo, Template

NAMESPACE = "http://amf.openlib.org"
SCHEMA = "http://amf.openlib.org/2001/amf.xsd"
_NOUNS = {"work": "text", "series": "collection", "archive": "collection", "person": "person"}
_TYPES = {
    "ReDIF-Paper": "preprint", "ReDIF-Article": "article", "ReDIF-Book": "book", "ReDIF-Chapter": "bookitem",
}  # fmt: skip
_PERSON = (
    ("name", "Name"), ("givenname", "Name-First"), ("familyname", "Name-Last"), ("email", "Email"),
    ("homepage", "Homepage"),
)  # fmt: skip


class Amf(RecordFormat):
    kinds = ("tobi",)
    schema = SCHEMA
    namespace = NAMESPACE

    def metadata(self, item: Item, context: Context) -> str:
        template = item.template
        noun = _NOUNS.get(template.family, "organization" if template.family == "institution" else "text")
        body = "".join(_work(item) if noun == "text" else _other(template, noun))
        return (
            f'<amf xmlns="{NAMESPACE}" xmlns:xsi="{XSI}" xsi:schemaLocation="{NAMESPACE} {self.schema_url(context)}">'
            f'<{noun} id="info:lib/{attribute(template.handle or item.obi.id)}">{body}</{noun}></amf>'
        )


def _work(item: Item) -> list[str]:
    template, fields = item.template, item.values

    def get(name: str) -> str:
        return fields[name][0] if name in fields else ""

    parts = _values("title", template.title)
    parts += _values("type", _TYPES.get(template.kind, ""))
    parts += _values("abstract", *fields.get("Abstract", ()))
    parts += _values("keywords", *(word for words in fields.get("Keywords", ()) for word in split_words(words)))
    parts += [
        f'<classification scheme="jel">{text(code)}</classification>'
        for codes in fields.get("Classification-JEL", ())
        for code in split_codes(codes)
    ]
    date = date_of(get("Creation-Date")) or date_of(get("Publication-Date")) or date_of(get("Year"))
    parts += _values("date", date)
    authors, editors = list[str](), list[str]()
    for cluster in template.clusters:
        if cluster.prefix == "Author":
            authors.append(f"<hasauthor>{_person(cluster)}</hasauthor>")
        elif cluster.prefix == "Editor":
            editors.append(f"<haseditor>{_person(cluster)}</haseditor>")
        elif cluster.role == "file":
            parts += _file(cluster.refipo())
    parts += _values("displaypage", *("".join(url.split()) for url in fields.get("Order-URL", ())))
    parts += authors + editors
    serial = _values("journaltitle", get("Journal")) + _values("volume", get("Volume")) + _values("issue", get("Issue"))
    pages = get("Pages").replace("--", "-").partition("-")
    serial += _values("startpage", pages[0].strip()) + _values("endpage", pages[2].strip())
    parts += [f"<serial>{''.join(serial)}</serial>"] if serial else []
    archive, series = archive_of(template.id), series_of(template.id)
    if archive and series:
        parts.append(f'<ispartof><collection ref="info:lib/RePEc:{attribute(f"{archive}:{series}")}"/></ispartof>')
    return parts


def _file(refipo: RawRefipo) -> list[str]:
    if not refipo.url_raw:
        return []
    parts = _values("url", refipo.url_raw) + _values("format", refipo.format)
    parts += _values("function", refipo.function) + _values("restriction", refipo.restriction)
    return [f"<file>{''.join(parts)}</file>"]


def _other(template: Template, noun: str) -> list[str]:
    parts = _values("title" if noun == "collection" else "name", template.title)
    parts += _values("description" if noun == "collection" else "note", template.get("Description"))
    parts += _values("email", template.get("Email") or template.get("Maintainer-Email"))
    parts += _values("homepage", template.get("Homepage") or template.get("URL"))
    return parts


def _person(cluster: Cluster) -> str:
    fields: dict[str, str] = {}
    for name, value in cluster.rows:
        if value:
            fields.setdefault(name, value)
    prefix = f"{cluster.prefix}-"
    parts: list[str] = []
    for element_name, field in _PERSON:
        parts += _values(element_name, fields.get(prefix + field, ""))
    for place in cluster.clusters:
        if place.name:
            parts.append(f"<ispartof><organization>{element('name', place.name)}</organization></ispartof>")
    return f"<person>{''.join(parts)}</person>"


def _values(name: str, *values: str) -> list[str]:
    return [element(name, value) for value in values if value and clean(value).strip()]
