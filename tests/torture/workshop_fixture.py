"""One workshop for all loops."""

import pytest

from torture.scenes import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    workshop = Workshop(tmp_path_factory.mktemp("torture"))
    yield workshop
    workshop.close()
