"""``archec demo``: gathers a small web site on loopback three times."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shlex import quote

import click

from archec.catalogue.engines import open_catalogue
from archec.cli.common import DIRECTORY
from archec.cli.coverage import coverage
from archec.cli.lost import lost
from archec.cli.report import report
from archec.cli.runreport import INDENT, gather_table
from archec.cli.status import status
from archec.config import DEFAULT_FILE
from archec.demo.show import make_archive, papers_that, play
from archec.errors import ConfigError
from archec.terminal.output import echo
from archec.terminal.progress import meter_for


@click.command()
@click.argument("directory", type=DIRECTORY, required=False)
@click.pass_context
def demo(context: click.Context, directory: Path | None) -> None:
    """Gather a small web site three times and show the result.

    The site runs on this machine (127.0.0.1); nothing else is contacted. The archive is created in DIRECTORY
    (default: a new temporary directory) and is kept.

    Example: archec demo my-demo
    """
    folder = directory or Path(tempfile.mkdtemp(prefix="archec-demo-"))
    config = make_archive(folder)
    file = folder / DEFAULT_FILE
    echo(f"The archive of the demo is in {folder.absolute()}")
    with meter_for() as meter:
        for number, story, done in play(config, meter):
            click.secho(f"\n== Gathering {number}: {story}", bold=True)
            for line in gather_table(done.figures()):
                echo(line, INDENT)
    with open_catalogue(config.database, base=config.base) as catalogue:
        urls = {
            word: ref.url
            for word in ("revised", "goes away", "chain")
            for handle in papers_that(word)
            for tobi in catalogue.obis("tobi", [handle]).values()
            for version in tobi.versions.values()
            for ref in version.refs[:1]
        }
    click.secho("\n== The state of the archive: archec status", bold=True)
    context.invoke(status, config_file=file)
    click.secho("\n== What has been lost: archec lost", bold=True)
    context.invoke(lost, config_file=file)
    click.secho("\n== How many works of each series are held: archec coverage", bold=True)
    context.invoke(coverage, config_file=file)
    click.secho("\n== A page about the last run: archec report", bold=True)
    page = folder / "report.html"
    try:
        context.invoke(report, run="last", output=page, config_file=file)
        echo(f"{page.absolute()}: open it in a browser")
    except ConfigError as error:  # Matplotlib is not installed
        echo(str(error))
    option = f"--config {quote(str(file))}"
    click.secho("\n== More commands", bold=True)
    for about, command in (
        ("the revised paper, both versions", f"archec history {urls['revised']} {option}"),
        ("its current bytes", f"archec get {urls['revised']} -o ferries.pdf {option}"),
        ("the paper that went away", f"archec history {urls['goes away']} {option}"),
        ("the paper behind redirects", f"archec history {urls['chain']} {option}"),
        ("the template that disappeared and returned", f"archec history {papers_that('returns')[0]} {option}"),
        ("everything, as JSON lines", f"archec dump {option}"),
        ("rebuild the catalogue from the archive directory", f"archec rebuild {option}"),
        ("the templates and their problems", f"archec redif {quote(str(config.data_path))}/dmo/wpaper/*"),
    ):
        click.echo(f"# {about}")
        click.echo(f"{command}")
