"""What lies in scripts/operations: the crontab's lines are run by sh, the units and the logrotate file are checked."""

from __future__ import annotations

import configparser
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

from archec.cli.main import cli

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "operations"


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


def cron(home: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a line as cron does: by sh, in the home directory, with next to no environment."""
    env = {name: value for name, value in environment().items() if name.startswith("PYTHON")}
    env |= {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "archec",
        "ARCHEC": f"{home}/bin/archec", "ARCHIVE": f"{home}/archive", "METRICS": f"{home}/archec.prom",
    }  # fmt: skip
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=home, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_crontab_names_commands_that_exist() -> None:
    variables, lines = crontab()
    assert set(variables) == {"ARCHEC", "ARCHIVE", "METRICS"}
    ranges = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    for line in lines:
        for field, (least, most) in zip(line.when.split(), ranges, strict=True):
            assert re.fullmatch(r"\*(/[0-9]+)?|[0-9]+", field), line
            assert field.startswith("*") or least <= int(field) <= most, line
        assert any(f'"$ARCHEC" {name} ' in line.command for name in cli.commands), line
    assert len(lines) == 4


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


def test_a_line_that_fails_has_something_to_say(home: Path) -> None:
    (home / "archive" / "config.yaml").write_text("nonsense: 1\n")
    for line in crontab()[1]:
        done = cron(home, line.command)
        assert "exit code 1\n" in done.stdout, line
        assert done.stderr == ""
    (gather,) = [line for line in crontab()[1] if " gather " in line.command]
    assert 'archec-run {"run": null, "state": "failed"' in cron(home, gather.command).stdout


def unit(name: str) -> configparser.ConfigParser:
    """A unit file."""
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string((FOLDER / name).read_text())
    return found


def test_the_units_command_lines_exist(home: Path) -> None:
    service = unit("archec.service")["Service"]
    for key in ("ExecStart", "ExecStopPost"):
        program, *arguments = shlex.split(service[key].removeprefix("-"))
        assert program == "/opt/archec/bin/archec"
        command = shlex.join([f"{home}/bin/archec", *arguments]).replace("/var/lib/node_exporter", str(home))
        done = cron(home, f"cd archive && {command}")
        assert done.returncode == 0, done.stderr
    assert service["SuccessExitStatus"].split() == ["3", "4", "5"]
    assert unit("archec.timer")["Timer"]["OnCalendar"]


def test_systemd_takes_the_units(home: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    for name in ("archec.service", "archec.timer"):
        text = (FOLDER / name).read_text().replace("/opt/archec/bin", f"{home}/bin")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "archec" in line]
    assert complaints == []
    calendar = unit("archec.timer")["Timer"]["OnCalendar"]
    assert subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, check=False).returncode == 0


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
