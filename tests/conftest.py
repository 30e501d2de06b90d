"""Shared by the tests: a process that waits without spinning, and where the golden values are."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from facetric.machine import prepare_process

prepare_process()  # before any test imports torch
settings.register_profile("facetric", deadline=None)  # a busy machine is not a failure
settings.load_profile("facetric")


@pytest.fixture(scope="session")
def golden_folder():
    """The authors' golden values; tests that need them are skipped without FACETRIC_ORACLE."""
    folder = os.environ.get("FACETRIC_ORACLE")
    if not folder:
        pytest.skip("set FACETRIC_ORACLE to the folder of golden values")
    assert any(Path(folder).glob("*.npz")), f"FACETRIC_ORACLE={folder} holds no .npz file"
    return Path(folder)
