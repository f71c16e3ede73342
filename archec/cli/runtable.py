"""The report of a run as a table, from the same values that ``--json`` prints."""

from __future__ import annotations

from typing import Any

from archec.units import human_duration, human_size

_MAX_PROBLEMS = 20


def gather_table(value: dict[str, Any]) -> list[str]:
    """The lines of the table; what data sets put into them is not yet safe to show."""
    data_set = value["data_set"]
    rows: list[tuple[str, str]] = [
        ("run", f"{value['run']}  {value['run_time']}  {value['state']}"),
        ("data set", f"{data_set['source']}  as of {data_set['time']}"),
    ]
    if not data_set["whole"]:
        rows.append(("", "truncated: nothing counts as lost"))
    files = value["files"]
    unread = f", {files['unreadable']:,} unreadable" if files["unreadable"] else ""
    rows.append(("files read", f"{files['read']:,}{unread}, {human_size(files['bytes'])}"))
    templates = value["templates"]
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in templates["by_type"].items())
    rows.append(("templates", f"{templates['total']:,}" + (f" ({kinds})" if kinds else "")))
    for name, label in (("duplicates", "repeated handles"), ("without_handle", "without a handle")):
        if templates[name]:
            rows.append(("", f"{templates[name]:,} {label}"))
    if templates["conflicts"]:
        rows.append(("", f"{templates['conflicts']:,} in conflict with another data set of the same date"))
    rows.append(("tobis", _counts(value["tobis"])))
    for code, count in value["held_back"].items():
        rows.append(("held back", f"{count:,} losses of {code}: accept with --accept-losses {code}"))
    if value["fobis"]:
        rows.append(("fobis", _counts(value["fobis"])))
        fetch = value["fetch"]
        rows.append(("fetched", f"{fetch['requests']:,} requests, {human_size(fetch['bytes'])}"))
        if fetch["deferred"]:
            rows.append(("", f"{fetch['deferred']:,} put off to the next run because of their hosts"))
    rows.append(("stored", human_size(value["stored_bytes"])))
    if value["seconds"]:
        rows.append(("took", ", ".join(f"{phase} {human_duration(s)}" for phase, s in value["seconds"].items())))
    if value["message"]:
        rows.append(("message", value["message"]))
    return [f"{label:<11} {text}" for label, text in rows] + _problems(value["problems"])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count) or "none"


def _problems(problems: dict[str, Any]) -> list[str]:
    total = sum(problems["by_code"].values())
    if not total:
        return []
    lines = [f"{'problems':<11} {_counts(problems['by_code'])}"]
    for problem in problems["first"][:_MAX_PROBLEMS]:
        place = f"{problem['path']}:{problem['line']}" if problem["line"] else problem["path"]
        lines.append(f"  {place}: {problem['code']}: {problem['message']}")
    if total > _MAX_PROBLEMS:
        lines.append(f"  ... and {total - min(_MAX_PROBLEMS, len(problems['first'])):,} more")
    return lines
