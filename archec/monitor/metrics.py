"""Metrics: the status of an archive as figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from archec import __version__
from archec.monitor.runs import SHOWN, RunView
from archec.monitor.status import Status
from archec.server.capability import Figure
from archec.server.metrics import as_text

__all__ = ["figures", "text"]


def text(status: Status) -> str:
    """The figures in Prometheus' text format."""
    return as_text(figures(status))


def figures(status: Status) -> Iterator[Figure]:
    """All figures of a status; times are tists, sizes bytes."""
    yield Figure("archec_info", 1, "The archec that wrote these figures.", (("version", __version__),))
    yield Figure("archec_time_seconds", status.now, "When these figures were taken.")
    obis = status.obis
    for kind, state, count in (
        ("tobi", "held", obis.tobis_held),
        ("tobi", "lost", obis.tobis_lost),
        ("fobi", "held", obis.fobis_held),
        ("fobi", "lost", obis.fobis_lost),
        ("fobi", "never", obis.fobis_never),
    ):
        yield Figure("archec_obis", count, "Obis by their newest state.", (("kind", kind), ("state", state)))
    yield Figure("archec_stored_bytes", status.stored_bytes, "Bytes that all runs wrote into the obi store.")
    disk = status.disk
    yield Figure("archec_disk_size_bytes", disk.size, "The file system of the obi store.")
    yield Figure("archec_disk_free_bytes", disk.free, "What of it is free.")
    yield Figure("archec_disk_inodes_free", disk.inodes_free, "Inodes of it that are free.")
    yield Figure("archec_disk_min_free_ratio", status.min_free, "The share below which runs stop.")
    yield Figure("archec_at_work", bool(status.at_work), "Whether a run is at work.")
    if status.last is not None:
        yield from _of_run(status.last)
    if status.success is not None:
        yield Figure("archec_last_success_time_seconds", status.success.run, "The newest run that came to its end.")
    yield Figure("archec_files_due", status.due.now, "Files that are due, 10000 at most.")
    if status.due.next is not None:
        yield Figure("archec_next_due_time_seconds", status.due.next, "When the next file is due; 0: never tried.")
    yield Figure("archec_hosts_in_trouble", status.hosts_in_trouble, "Hosts in trouble in the newest run that fetched.")
    losses = sum(item.losses for item in status.held_back)
    yield Figure("archec_losses_held_back", losses, "Losses that await a decision.")
    if status.fixity.oldest is not None:
        yield Figure("archec_oldest_fixity_check_time_seconds", status.fixity.oldest, "The oldest check that counts.")
    yield Figure("archec_fixity_bad", status.fixity.bad, "Entries that are known to be bad.")


def _of_run(run: RunView) -> Iterator[Figure]:
    yield Figure("archec_last_run_time_seconds", run.run, "The software tist of the last run.")
    for state in SHOWN:
        labels = (("state", state),)
        yield Figure("archec_last_run_state", state == run.state, "The state of the last run: 1 for that one.", labels)
    yield Figure("archec_last_run_resumable", run.resumable, "Whether --resume would carry on with it.")
    if run.counts("files").get("read") or "templates" in run.part("seconds"):
        whole = bool(run.part("data_set").get("whole"))
        yield Figure("archec_last_run_data_set_whole", whole, "Whether its data set did not break off.")
    if run.seconds is not None:
        yield Figure("archec_last_run_seconds", run.seconds, "How long it took.")
    for kind, count in run.counts("tobis").items():
        yield Figure("archec_last_run_tobis", count, "Templates by what became of them.", (("what", kind),))
    for outcome, count in run.counts("fobis").items():
        yield Figure("archec_last_run_fobis", count, "Visits by outcome.", (("what", outcome),))
    fetch = run.counts("fetch")
    yield Figure("archec_last_run_requests", fetch.get("requests", 0), "Requests made.")
    yield Figure("archec_last_run_fetched_bytes", fetch.get("bytes", 0), "Bytes fetched.")
    yield Figure("archec_last_run_stored_bytes", run.stored_bytes, "Bytes written into the obi store.")
    yield Figure("archec_last_run_problems", run.problems, "Problems in its data set.")
