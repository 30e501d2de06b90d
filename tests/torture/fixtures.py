"""One workshop for all loops, and their counts, printed at the end: a plugin, for a second conftest would hide the first."""

import pytest

from torture.scenes import Workshop
from torture.tally import Tally


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
    for name, tally in tallies.items():
        reporter.write_line(f"\n{name}\n{tally.table()}")
        for failure in tally.failures[:50]:
            reporter.write_line(f"  BAD {failure}")


@pytest.fixture
def tally(request, all_tallies):
    """The counts of one loop."""
    return all_tallies.setdefault(request.node.name.removeprefix("test_").replace("_", " "), Tally())
