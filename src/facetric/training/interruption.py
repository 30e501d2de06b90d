"""SIGINT and SIGTERM ask a run to stop after its step; a second SIGINT stops it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, remembers the first signal in `signal_number` (0 for none) instead of letting it end the process."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            self._before = {number: signal.signal(number, self._remember) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = self.signal_number or number
