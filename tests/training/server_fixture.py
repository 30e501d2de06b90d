"""One forking server for all tests that start, kill and resume runs: a plugin, for a second conftest would hide the first."""

import pytest

from training.forking_server import ForkingServer


@pytest.fixture(scope="session")
def server():
    server = ForkingServer()
    yield server
    server.close()
