"""What lies in scripts/operations: the crontab's lines are run by sh, the units and the logrotate file are checked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from gather_support import environment, make, run, write_papers
from small_disk import small_disk

from archec.config import load

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "operations"
JOBS = ("gather", "check", "verify", "copy", "export", "seal", "report", "metrics")


def test_a_job_needs_its_name() -> None:
    done = subprocess.run([FOLDER / "job"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"usage: job {'|'.join(JOBS)}\n")


class Line(NamedTuple):
    """A line of a crontab: when, and what sh gets."""

    when: str
    command: str


def crontab() -> tuple[dict[str, str], list[Line]]:
    """The variables and the lines of our crontab, read as cron reads them."""
    variables: dict[str, str] = {}
    lines: list[Line] = []
    for text in (FOLDER / "crontab").read_text().splitlines():
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if equals and re.fullmatch("[A-Z]+", name):
            assert value, "cron refuses a line whose value is empty and not quoted, and with it the whole crontab"
            variables[name] = value
            continue
        fields = text.split(None, 5)
        assert "%" not in fields[5], "cron takes % for a line's end"
        lines.append(Line(" ".join(fields[:5]), fields[5]))
    return variables, lines


@pytest.fixture
def home(memory_folder: Callable[[], Path]) -> Path:
    """An archive with one run, and an archec in its folder ``bin``."""
    folder = memory_folder()
    config = make(folder / "archive")
    write_papers(config, [])
    run(config)
    (config.base / "log").mkdir()
    (folder / "bin").mkdir()
    script = folder / "bin" / "archec"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m archec "$@"\n')
    script.chmod(0o755)
    return folder


def cron(home: Path, command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Runs a line as cron does: by sh, in the home directory, with next to no environment."""
    env = {name: value for name, value in environment().items() if name.startswith("PYTHON")}
    env |= {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "archec", "JOB": f"{FOLDER}/job",
        "ARCHEC": f"{home}/bin/archec", "ARCHIVE": f"{home}/archive", "METRICS": str(home),
        "COPY": f"{home}/second copy/archec", "VAULT": f"{home}/vault",
    }  # fmt: skip
    command_line, env = ["/bin/sh", "-c", command], env | changes
    return subprocess.run(command_line, cwd=home, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_the_crontab_names_jobs_that_exist() -> None:
    variables, lines = crontab()
    assert set(variables) == {"MAILTO", "JOB", "ARCHEC", "ARCHIVE", "COPY", "VAULT", "METRICS"}
    ranges = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    for line in lines:
        for field, (least, most) in zip(line.when.split(), ranges, strict=True):
            assert re.fullmatch(r"\*(/[0-9]+)?|[0-9]+", field), line
            assert field.startswith("*") or least <= int(field) <= most, line
    assert [line.command for line in lines] == [f'"$JOB" {job}' for job in JOBS]


@pytest.mark.slow
def test_every_line_of_the_crontab_runs_and_says_nothing(home: Path) -> None:
    _, lines = crontab()
    for line in lines:
        done = cron(home, line.command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), line
    log = (home / "archive" / "log" / "gather.log").read_text()
    assert log.splitlines()[-1].startswith('archec-run {"run": ')
    assert "archec_obis" in (home / "archec.prom").read_text()
    assert (home / "archive" / "report.html").stat().st_size > 1000
    assert list((home / "archive" / "seals").glob("*.txt"))
    assert (home / "second copy" / "archec" / "layout.json").exists()
    assert (home / "vault").exists()


def test_what_is_not_set_up_is_not_done_and_sends_no_mail(home: Path) -> None:
    for job, changes in (("metrics", {"METRICS": "/nowhere"}), ("copy", {"COPY": ""}), ("export", {"VAULT": ""})):
        done = cron(home, f'"$JOB" {job}', **changes)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), job


def test_a_job_that_fails_has_something_to_say(home: Path) -> None:
    config = load(home / "archive" / "config.yaml")
    for number in (4, 1):
        write_papers(config, ["http://h/x"] * number)
        run(config, fetch=False)
    done = cron(home, '"$JOB" report')
    assert (done.returncode, done.stdout.count("archec losses accept")) == (3, 1), done
    next(config.base.rglob("RePEc%3A*")).unlink()
    first, again = cron(home, '"$JOB" verify'), cron(home, '"$JOB" verify')
    assert first.returncode == again.returncode == 6
    assert (again.stdout.count("is not there"), "1 wrong" in again.stdout) == (1, True), again.stdout
    (home / "archive" / "config.yaml").write_text("nonsense: 1\n")
    for job in ("gather", "verify"):
        done = cron(home, f'"$JOB" {job}')
        assert (done.returncode, done.stderr) == (1, "")
        assert f"archec {job}: exit code 1\n" in done.stdout
        told = cron(home, f'"$JOB" {job}', INVOCATION_ID="1")
        assert "nonsense" in told.stderr
    assert 'archec-run {"run": null, "state": "failed"' in cron(home, '"$JOB" gather').stdout
    assert cron(home, '"$JOB" nonsense').returncode == 2
    log = home / "archive" / "log"
    shutil.rmtree(log)
    with small_disk(log, "size=4k"):
        (log / "verify.log").write_bytes(bytes(4096))
        assert "Filesystem" in cron(home, '"$JOB" verify').stdout


def test_a_job_runs_although_it_cannot_write_its_log(home: Path) -> None:
    log = home / "archive" / "log"
    log.rmdir()
    log.write_text("a file in its place")
    done = cron(home, '"$JOB" gather')
    assert (done.returncode, "archec-run {" in done.stdout + done.stderr, "log" in done.stderr) == (0, True, True), done


def test_a_job_says_why_it_failed_although_its_log_was_rotated_meanwhile(home: Path) -> None:
    log = home / "archive" / "log" / "verify.log"
    log.write_text("what an earlier run said\n")
    script = home / "bin" / "archec"
    script.write_text(f"#!/bin/sh\nmv '{log}' '{log}-1'; touch '{log}'; echo the reason >&2; exit 6\n")
    done = cron(home, '"$JOB" verify')
    assert (done.returncode, done.stdout) == (6, "archec verify: exit code 6\nthe reason\n")


def test_the_second_copy_of_the_docs(home: Path) -> None:
    """Word for word, but for the folders."""
    text = (FOLDER.parents[1] / "docs" / "operations.md").read_text()
    lines = re.findall(r"^rsync .+$", text.partition("\n## A second copy\n")[2].partition("\n## ")[0], re.M)
    assert len(lines) == 2
    for line in lines:
        done = cron(home, line.replace("/srv/archec", f"{home}/archive").replace("/mnt/copy", f"{home}/copy"))
        assert (done.returncode, done.stderr) == (0, "")
        job = line.replace("/srv/archec/", "").replace("/mnt/copy/archec", "$COPY")
        shipped = re.sub(r"\\\n\s*", "", (FOLDER / "job").read_text()).replace('"', "")
        assert job in shipped
    done = cron(home, 'cd "$ARCHIVE" && "$ARCHEC" compare ../copy/archec')
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_drill(home: Path) -> None:
    config = load(home / "archive" / "config.yaml", environ={})
    write_papers(config, ["http://127.0.0.1:9/a"])
    run(config, fetch=False)
    done = cron(home, f"{FOLDER}/drill archive drilled")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The drill went well." in done.stdout
    assert "missing: 1\n" in done.stdout
    (home / "archive" / "archive" / "runs").rename(home / "gone")
    assert cron(home, f"{FOLDER}/drill archive again").returncode != 0


def test_systemd_takes_the_units(home: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    units = [*FOLDER.glob("*.service"), *FOLDER.glob("*.timer")]
    timers = {unit.name for unit in units if unit.suffix == ".timer"}
    assert timers == {f"archec@{job}.timer" for job in JOBS}
    for unit in units:
        text = unit.read_text().replace("/opt/archec/bin", f"{home}/bin").replace("/opt/archec/job", f"{FOLDER}/job")
        (tmp_path / unit.name).write_text(text)
    names = ["archec-serve.service", "archec-mail@x.service", *(f"archec@{job}.service" for job in JOBS)]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names, *(f"archec@{job}.timer" for job in JOBS)],
        cwd=tmp_path, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "archec" in line] == []


def test_logrotate_takes_its_file(tmp_path: Path) -> None:
    program = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("logrotate is not installed")
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "gather.log"
    log.write_text("archec-run {}\n")
    text = (FOLDER / "archec.logrotate").read_text().replace("/srv/archec", str(tmp_path))
    owner = f"{os.getuid()} {os.getgid()}"
    text = re.sub("^ *su archec archec\n", "", text, flags=re.M).replace("archec archec", owner)
    path = tmp_path / "conf"
    path.write_text(text)
    path.chmod(0o644)
    command = [program, "-s", str(tmp_path / "state"), str(path)]
    tried = subprocess.run([*command[:1], "-d", *command[1:]], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    assert "error" not in tried.stderr
    done = subprocess.run([*command, "--force"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert log.read_text() == ""
    assert len(list(log.parent.glob("gather.log-*"))) == 1
