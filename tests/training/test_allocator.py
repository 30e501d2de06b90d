"""Freed memory is kept: large blocks that come and go cost no page faults."""

import subprocess
import sys

import pytest

COUNT = """
import resource, sys
import numpy as np
from facetric.allocator import keep_freed_memory

print(keep_freed_memory() if sys.argv[1] == "kept" else False)
np.ones(2**23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    np.ones(2**23)  # 64 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kind):
    found = subprocess.run([sys.executable, "-c", COUNT, kind], capture_output=True, text=True, check=True).stdout.split()
    return found[0] == "True", int(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is the C library of Linux")
def test_blocks_that_are_freed_are_used_again():
    done, kept = faults("kept")
    if not done:
        pytest.skip("the C library is not glibc")
    _, given_back = faults("given back")
    assert kept < 100 < given_back
