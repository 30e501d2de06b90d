"""One forking server for all tests that start, kill and resume runs."""

import pytest

from training.forking_server import ForkingServer


@pytest.fixture(scope="session")
def server():
    server = ForkingServer()
    yield server
    server.close()
