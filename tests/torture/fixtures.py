"""One workshop for all loops, and their counts, printed at the end: a plugin, for a second conftest would hide the first."""

import os

import pytest

from torture.scenes import Workshop
from torture.tally import Tally, recorded


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    workshop = Workshop(tmp_path_factory.mktemp("torture"))
    yield workshop
    workshop.close()


@pytest.fixture(scope="session")
def all_tallies(request):
    """All loops; the table is printed at the end."""
    tallies = {}
    yield tallies
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    output = os.environ.get("TORTURE_OUTPUT")
    for tally in (recorded(output) if output else tallies).values():
        reporter.write_line(f"\n{tally.table()}")


@pytest.fixture
def tally(request, all_tallies):
    """The counts of one loop."""
    loop = request.node.name.removeprefix("test_").replace("_", " ")
    return all_tallies.setdefault(loop, Tally(loop))
