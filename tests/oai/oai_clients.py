"""Real harvesters, each as a function that gives identifier and deletion of all it got; and a busy server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pytest
from oai_http import alone, served
from oai_support import World
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Found = list[tuple[str, bool]]

# HTTP::OAI waits ten seconds more than it is told, oai-pmh five at least: here they wait one.
PERL = """
BEGIN { *CORE::GLOBAL::sleep = sub { CORE::sleep(1) } }
use HTTP::OAI; use JSON::PP;
my ($url, %arguments) = @ARGV;
my @found;
my $client = HTTP::OAI::Harvester->new(baseURL => $url);
my $answer = $client->ListRecords(%arguments, onRecord => sub {
  push @found, [$_[0]->identifier, $_[0]->header->is_deleted ? JSON::PP::true : JSON::PP::false];
});
my @errors = grep { $_->code ne 'noRecordsMatch' } $answer->errors;
die $errors[0]->code if @errors;
die $answer->message if $answer->is_error && !$answer->errors;
print encode_json(\\@found);
"""
NODE = """
const { OaiPmh } = require('oai-pmh');
const [url, options] = [process.argv[1], JSON.parse(process.argv[2])];
(async () => {
  const found = [];
  try {
    for await (const record of new OaiPmh(url, { retryMin: 1 }).listRecords(options)) {
      const header = record.header;
      found.push([header.identifier, Boolean(header.$ && header.$.status === 'deleted')]);
    }
  } catch (error) {
    if (error.code !== 'noRecordsMatch') throw error;
  }
  console.log(JSON.stringify(found));
})().catch((error) => { console.error(error); process.exit(1); });
"""


def sickle(url: str, **arguments: str) -> Found:
    from sickle import Sickle
    from sickle.oaiexceptions import NoRecordsMatch

    client = Sickle(url, max_retries=5, default_retry_after=1, retry_status_codes=[503])
    try:
        found = client.ListRecords(**arguments, ignore_deleted=False)
    except NoRecordsMatch:
        return []
    return [(record.header.identifier, record.header.deleted) for record in found]


def scythe(url: str, **arguments: str) -> Found:
    package = pytest.importorskip("oaipmh_scythe")
    names = {"metadataPrefix": "metadata_prefix", "set": "set_", "from": "from_", "until": "until"}
    with package.Scythe(url, retry_config=package.RetryConfig(max_retries=5)) as client:
        try:
            given = {names[name]: value for name, value in arguments.items()}
            return [(record.header.identifier, record.header.deleted) for record in client.list_records(**given)]
        except package.NoRecordsMatch:
            return []


def perl(url: str, **arguments: str) -> Found:
    return _printed(["perl", "-e", PERL, url, *(word for pair in arguments.items() for word in pair)])


def node(url: str, **arguments: str) -> Found:
    return _printed(["node", "-e", NODE, url, json.dumps(arguments)])


class Client(NamedTuple):
    """A harvester. ``probe`` fails where it is not installed; ``lone`` whether it bears a page of one record."""

    harvest: Callable[..., Found]
    probe: tuple[str, ...] = ()
    lone: bool = True


CLIENTS = [
    pytest.param(Client(sickle), id="sickle"),
    pytest.param(Client(scythe), id="oaipmh-scythe"),
    pytest.param(
        Client(perl, ("perl", "-MHTTP::OAI", "-MJSON::PP", "-e", "1")), id="HTTP::OAI", marks=pytest.mark.slow
    ),
    pytest.param(Client(node, ("node", "-e", "require('oai-pmh')"), False), id="oai-pmh", marks=pytest.mark.slow),
]


def needs(client: Client) -> None:
    """Skips where the harvester is not installed."""
    if not client.probe:
        return
    here = shutil.which(client.probe[0]) is not None and not _run(list(client.probe)).returncode
    if not here:
        pytest.skip(f"{client.probe[0]} has no OAI client here (libhttp-oai-perl; npm oai-pmh in $ARCHEC_TEST_NODE)")


def compared(
    world: World, client: Client, around: Callable[[ASGIApp], ASGIApp] = alone, **arguments: str
) -> Found:
    """A harvest over HTTP in pages of a few, which must be what the provider itself says, in its order."""
    given = {"metadataPrefix": "oai_dc", **{name.rstrip("_"): value for name, value in arguments.items()}}
    wanted: Found = [
        (str(header.findtext("{*}identifier")), header.get("status") == "deleted")
        for root in world.walk("ListIdentifiers", **given)
        for header in root.iterfind(".//{*}header")
    ]
    size = next(size for size in range(7, 100) if client.lone or len(wanted) % size != 1)
    if len(wanted) == 1 and not client.lone:
        return wanted
    world.use(dataclasses.replace(world.config.oai, numOfRecords=size))
    with served(world, around=around) as site:
        found = client.harvest(site.oai, **given)
    assert found == wanted
    return found


class Crowd:
    """Takes the only place for lists at every third list request: the server refuses it, ``refused`` says how often.

    For a server with ``oai.max_lists`` 1: another client is given the answer to the same request, and does not take it
    until the request has been refused.
    """

    def __init__(self) -> None:
        self.refused = self._asked = 0

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application with the crowd before it."""

        async def crowded(scope: Scope, receive: Receive, send: Send) -> None:
            lists = scope["type"] == "http" and b"verb=List" in scope["query_string"]
            self._asked += lists
            if not lists or self._asked % 3:
                await app(scope, receive, send)
                return
            begun, refused = asyncio.Event(), asyncio.Event()

            async def asked() -> Message:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def stalling(message: Message) -> None:
                begun.set()
                await refused.wait()

            async def refusing(message: Message) -> None:
                self.refused += message.get("status") == 503
                await send(message)

            other = asyncio.create_task(app(dict(scope), asked, stalling))
            await begun.wait()
            await app(scope, receive, refusing)
            refused.set()
            await other

        return crowded


def _printed(command: list[str]) -> Found:
    done = _run(command)
    assert done.returncode == 0, done.stderr
    return [(str(name), bool(deleted)) for name, deleted in json.loads(done.stdout)]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    folder = os.environ.get("ARCHEC_TEST_NODE") if command[0] == "node" else None
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)
