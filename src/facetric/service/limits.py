"""What one request, and all of them together, may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields

from facetric.images.decoding import MAX_PIXELS


@dataclass(frozen=True)
class Limits:
    """Beyond them a request is refused: 413, 422, 503 and 429, in this order."""

    megabytes: float = 20.0  # of a request
    megapixels: float = 50.0  # of a picture, as its header says, before it is decoded
    seconds: float = 30.0  # from the first byte of a request to the last byte of its answer
    requests: int = 64  # under way at a time

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"a limit is above 0; got {value} {field.name}: raise it (--max-{field.name})")
        if self.megapixels * 1e6 > MAX_PIXELS:
            most = MAX_PIXELS / 1e6
            raise ValueError(
                f"pictures above {most:g} megapixels are never decoded; got {self.megapixels}: lower --max-megapixels"
            )

    @property
    def n_bytes(self) -> int:
        return int(self.megabytes * 1e6)

    @property
    def n_pixels(self) -> int:
        return int(self.megapixels * 1e6)
