"""What an exported file says of itself: a record in the metadata of the ONNX model, under the key "facetric", as JSON.

A serialized ONNX model followed by a second one that holds nothing but metadata is, by the rules of protocol buffers, the model
with that metadata. So the record is the end of the file and holds checksums of the model before it and of itself: a file that was
quantized, optimized or damaged after the export is noticed before onnxruntime sees it, and the fingerprint in it is not taken for
that of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from facetric.embedder.onnx_graph import InputKind
from facetric.files import sealed, unsealed
from facetric.images import Preprocessing
from facetric.text import printable

KEY = "facetric"
_FORMAT = 2
_RECORD = b'{\n "sha256"'  # how `sealed` begins
_BROKEN = "export it again with `facetric export`"


class OnnxFileError(ValueError):
    """A file that is missing, damaged, changed or not written by `facetric export`."""


@dataclass(frozen=True)
class OnnxDescription:
    """Which model an exported file holds, what it takes and what to expect of its vectors. No class, image or path is named."""

    fingerprint: str  # of the model: equal to that of the run, whose vectors these are
    network: str  # the backbone
    dim: int
    unit_length: bool  # whether vectors have length one
    kind: InputKind  # "uint8": pictures (n, size, size, channels); "float32": normalized crops (n, channels, crop, crop)
    preprocessing: (
        Preprocessing  # upright pictures are stretched to size × size (bilinear, antialiased); the rest is in the graph
    )
    calibration: Mapping[str, Any] | None  # `Calibration.as_dict`
    calibrated_on: str
    n_checked: int  # pictures on which the file was compared with torch
    difference: float  # the largest found: the distance of two vectors of a picture, relative to their length

    def words(self) -> str:
        """What the file takes, in a sentence."""
        form = self.preprocessing
        color = "RGB" if form.channels == 3 else "gray"
        picture = f"an upright {color} picture, stretched to {form.size} × {form.size} (bilinear, antialiased)"
        if self.kind == "uint8":
            return f"uint8 (n, {form.size}, {form.size}, {form.channels}): {picture}"
        padded = f", {form.pad} black pixels added on every side" if form.pad else ""
        return (
            f"float32 (n, {form.channels}, {form.crop}, {form.crop}): {picture}{padded}, its center crop of {form.crop} pixels, "
            f"(v/255 − mean) / std with mean {list(form.mean)} and std {list(form.std)}"
        )


def with_description(graph: bytes, description: OnnxDescription, *, made_by: str) -> bytes:
    """The file: the model, and the record at its end."""
    from onnx import ModelProto

    record = {
        "format": _FORMAT,
        "made_by": made_by,
        "input": description.words(),
        **asdict(description),
        "graph_bytes": len(graph),
        "graph_sha256": hashlib.sha256(graph).hexdigest(),
    }
    end = ModelProto()
    end.metadata_props.add(key=KEY, value=sealed(record).decode())
    record_bytes: bytes = end.SerializeToString()
    return graph + record_bytes


def read_description(path: Path, content: bytes) -> tuple[bytes, OnnxDescription]:
    """The model in the content of a file, and its record; an OnnxFileError that says what is wrong."""
    start = content.rfind(_RECORD)
    if start < 0:
        raise OnnxFileError(
            f"{printable(path)} does not end with a record of facetric, it is of another program or cut off: {_BROKEN}"
        )
    try:
        record = unsealed(content[start:])
        if record.pop("format") != _FORMAT:
            raise OnnxFileError(f"{printable(path)} was written by another version of facetric ({record['made_by']}): {_BROKEN}")
        graph = content[: record.pop("graph_bytes")]
        if hashlib.sha256(graph).hexdigest() != record.pop("graph_sha256"):
            raise ValueError("the checksum of its model is wrong")
        del record["made_by"], record["input"]
        return graph, OnnxDescription(**{**record, "preprocessing": Preprocessing(**record["preprocessing"])})
    except OnnxFileError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise OnnxFileError(
            f"{printable(path)} was changed after its export ({error}), its vectors may not be those of the model: {_BROKEN}"
        ) from error
