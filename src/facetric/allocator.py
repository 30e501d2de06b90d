"""Freed memory stays with the process: a network on a CPU asks for the same large blocks again and again.

glibc gives large blocks back to the system as soon as they are freed, and every new one is mapped, zeroed and faulted in page by
page. For a batch of images that takes as long as the network itself (benchmarks/memory.py).
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of malloc.h
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed blocks of any size; True if it does. Elsewhere nothing happens.

    It is for a process of our own, such as a command: whoever imports the library keeps the allocator as it is.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, 2**26))
    done = [mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings]
    return all(done)
