"""The results of ingests as SQL: the table ``ingest_fileset_platform`` for PostgreSQL or SQLite."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Ingest
from archec.fileset.context import IngestOptions
from archec.fileset.lookup import is_selection
from archec.fileset.status import Status
from archec.tist import iso

Dialect = Literal["postgresql", "sqlite"]
_COLUMNS = (
    "ingest_type", "base_url", "updated", "hit", "status", "platform_name", "platform_domain", "platform_id",
    "ingest_strategy", "total_size", "file_count", "archiveorg_item_name", "archiveorg_item_bundle_path",
    "web_bundle_url", "web_bundle_dt", "manifest",
)  # fmt: skip
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_KEY = ("ingest_type", "base_url")
_NEEDED = ("ingest_type", "base_url", "platform_name", "platform_domain", "platform_id")


def statements(catalogue: Catalogue, dialect: Dialect) -> Iterator[str]:
    """Yields statements for the table, its index, and a row for each base URL whose platform is known. All of them may
    be run again."""
    yield _table(dialect)
    yield (
        "CREATE INDEX IF NOT EXISTS ingest_fileset_platform_name_domain_id_idx"
        " ON ingest_fileset_platform(platform_name, platform_domain, platform_id);\n"
    )
    for ingest in catalogue.ingests():
        if ingest.platform_name and ingest.platform_domain and ingest.platform_id:
            yield _row(catalogue, ingest, dialect)


def _table(dialect: Dialect) -> str:
    postgres = dialect == "postgresql"

    def column(name: str) -> str:
        length = f"octet_length({name})" if postgres else f"length(CAST({name} AS BLOB))"
        kinds = {
            "updated": "TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL" if postgres
            else "TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')) NOT NULL",
            "hit": "BOOLEAN NOT NULL",
            "total_size": "BIGINT",
            "file_count": "BIGINT",
            "web_bundle_dt": f"TEXT CHECK ({length} = 14)",
            "manifest": "JSONB" if postgres else "TEXT CHECK (manifest IS NULL OR json_valid(manifest))",
        }  # fmt: skip
        if name in kinds:
            return f"    {name} {kinds[name]}"
        return f"    {name} TEXT {'NOT NULL ' if name in _NEEDED else ''}CHECK ({length} >= 1)"

    columns = ",\n".join(column(name) for name in _COLUMNS)
    return (
        f"CREATE TABLE IF NOT EXISTS ingest_fileset_platform (\n{columns},\n    PRIMARY KEY ({', '.join(_KEY)})\n);\n"
    )


def _row(catalogue: Catalogue, ingest: Ingest, dialect: Dialect) -> str:
    options = msgspec.convert(ingest.options if is_selection(ingest) else {}, IngestOptions)
    selected = filter(options.selection.wants, catalogue.manifest(ingest.state))
    files = ", ".join(json.dumps(msgspec.to_builtins(file)) for file in selected)
    values = {
        **msgspec.structs.asdict(ingest),
        "updated": iso(ingest.tist),
        "hit": Status(ingest.status).is_hit,
        "total_size": ingest.total_size if (ingest.total_size or 0) < 1 << 63 else None,
        "archiveorg_item_bundle_path": ingest.archiveorg_bundle_path,
        "manifest": f"[{files}]" if ingest.state else None,
    }
    shown = ", ".join(_literal(values[name], dialect) for name in _COLUMNS)
    updates = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _KEY)
    return (
        f"INSERT INTO ingest_fileset_platform ({', '.join(_COLUMNS)})\nVALUES ({shown})\n"
        f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {updates};\n"
    )


def _literal(value: object, dialect: Dialect) -> str:
    if value in (None, ""):
        return "NULL"
    if isinstance(value, bool):
        return ("TRUE" if value else "FALSE") if dialect == "postgresql" else str(int(value))
    if isinstance(value, int):
        return str(value)
    text = str(value).replace("\0", "\ufffd")
    if dialect == "postgresql":  # which supports no NUL, neither in text nor as an escape in JSON
        text = _NUL.sub(r"\1\\ufffd", text)
    return "'" + text.replace("'", "''") + "'"
