"""What a backbone expects of its images."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InputSpec:
    """Square crops of `size` pixels with `channels` channels, values (v/255 − mean) / std per channel."""

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.size < 1 or self.channels < 1:
            raise ValueError(f"size and channels must be at least 1; got {self.size} and {self.channels}: pass the backbone's")
        if not len(self.mean) == len(self.std) == self.channels or min(self.std) <= 0:
            raise ValueError(
                f"mean and std need {self.channels} numbers each, and std positive ones; got {self.mean} and {self.std}: "
                "pass those of the backbone"
            )
