"""Metrics: the status of an archive for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Info

from archec import __version__
from archec.monitor.runs import SHOWN, RunView
from archec.monitor.status import ArchiveStatus


def metrics_of(status: ArchiveStatus) -> CollectorRegistry:
    """All metrics of a status; times are tists, sizes bytes."""
    to = CollectorRegistry()
    Info("archec", "The version of archec that wrote these metrics.", registry=to).info({"version": __version__})
    _gauge(to, "archec_time_seconds", "When these metrics were collected.", status.now)
    obis = Gauge("archec_obis", "Obis by their newest state.", ("kind", "state"), registry=to)
    for name, count in status.obis._asdict().items():  # tobis_held and so on
        obis.labels(*name.split("s_")).set(count)
    _gauge(to, "archec_stored_bytes", "Bytes that all runs wrote into the obi store.", status.stored_bytes)
    _gauge(to, "archec_disk_size_bytes", "The file system of the obi store.", status.disk.size)
    _gauge(to, "archec_disk_free_bytes", "Free bytes of it.", status.disk.free)
    _gauge(to, "archec_disk_inodes_free", "Free inodes of it.", status.disk.inodes_free)
    _gauge(to, "archec_disk_min_free_ratio", "The share below which runs stop.", status.min_free)
    _gauge(to, "archec_at_work", "Whether a run is active.", bool(status.at_work))
    _gauge(to, "archec_at_work_quiet_seconds", "How long the active run has journalled nothing.", status.quiet)
    if status.last is not None:
        _last_run(to, status.last)
    if status.success_time is not None:
        meaning = "When the newest run began that finished; not one with files due of which no host answered."
        _gauge(to, "archec_last_success_time_seconds", meaning, status.success_time)
    failed = status.unbegun.time if status.unbegun is not None else 0
    _gauge(to, "archec_unbegun_run_time_seconds", "When a run failed before it began; 0: the newest began.", failed)
    _gauge(to, "archec_tist_ahead_seconds", "By how much the newest tist is ahead of the clock.", status.ahead)
    _gauge(to, "archec_files_due", "Files that are due, 10000 at most.", status.due.now)
    if status.due.next is not None:
        what = "When the next file is due; 0: never tried, 1: at once."
        _gauge(to, "archec_next_due_time_seconds", what, status.due.next)
    in_trouble = status.hosts_in_trouble
    _gauge(to, "archec_hosts_in_trouble", "Hosts in trouble in the newest run that fetched.", in_trouble)
    losses = sum(item.losses for item in status.held_back)
    _gauge(to, "archec_losses_held_back", "Losses that await a decision.", losses)
    if status.fixity.oldest is not None:
        oldest = status.fixity.oldest
        _gauge(to, "archec_oldest_fixity_check_time_seconds", "The least recent fixity check.", oldest)
    amounts = {f"{days}d": some for days, some in status.fixity.within}
    amounts |= {"never": status.fixity.never, "all": status.fixity.whole}
    objects = {checked: float(some.objects) for checked, some in amounts.items()}
    _gauges(to, "archec_fixity_objects", "Objects by when their bytes were checked last.", "checked", objects)
    sizes = {checked: float(some.bytes) for checked, some in amounts.items()}
    _gauges(to, "archec_fixity_bytes", "Their bytes.", "checked", sizes)
    uncounted = status.fixity.uncounted
    _gauge(to, "archec_fixity_journals_uncounted", "Journals whose objects are not included.", uncounted)
    times = {"quick" if one.quick else "whole": float(one.at) for one in status.fixity.structures}
    _gauges(to, "archec_last_check_time_seconds", "The last check of the structure.", "scope", times)
    wrong = {"quick" if one.quick else "whole": float(one.wrong) for one in status.fixity.structures}
    _gauges(to, "archec_last_check_wrong", "What it found wrong.", "scope", wrong)
    what = "Whether something could not be read from the catalogue and counts as nothing here."
    _gauge(to, "archec_catalogue_damaged", what, bool(status.damaged))
    _gauge(to, "archec_catalogue_refused", "Documents that the database refused.", status.refused)
    _gauge(to, "archec_fixity_bad", "Entries that are known to be bad.", status.fixity.bad)
    return to


def _last_run(to: CollectorRegistry, run: RunView) -> None:
    _gauge(to, "archec_last_run_time_seconds", "The software tist of the last run.", run.run)
    states = {state: state == run.state for state in SHOWN}
    _gauges(to, "archec_last_run_state", "The state of the last run: 1 for the current state.", "state", states)
    _gauge(to, "archec_last_run_resumable", "Whether --resume would continue it.", run.resumable)
    figures = run.figures
    if figures.files.read or "templates" in figures.seconds:
        _gauge(to, "archec_last_run_data_set_whole", "Whether its data set was complete.", figures.data_set.whole)
    if run.seconds is not None:
        _gauge(to, "archec_last_run_seconds", "Duration of the last run.", run.seconds)
    _gauges(to, "archec_last_run_tobis", "Templates by outcome.", "what", figures.tobis)
    _gauges(to, "archec_last_run_fobis", "Visits by outcome.", "what", figures.fobis)
    _gauge(to, "archec_last_run_requests", "Requests made.", figures.fetch.requests)
    _gauge(to, "archec_last_run_fetched_bytes", "Bytes fetched.", figures.fetch.bytes)
    _gauge(to, "archec_last_run_stored_bytes", "Bytes written into the obi store.", figures.stored_bytes)
    _gauge(to, "archec_last_run_problems", "Problems in its data set.", run.problems)


def _gauge(to: CollectorRegistry, name: str, help: str, value: float) -> None:  # noqa: A002
    Gauge(name, help, registry=to).set(value)


def _gauges(to: CollectorRegistry, name: str, help: str, label: str, values: Mapping[str, float]) -> None:  # noqa: A002
    gauge = Gauge(name, help, (label,), registry=to)
    for key, value in values.items():
        gauge.labels(key).set(value)
