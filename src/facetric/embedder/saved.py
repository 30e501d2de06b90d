"""The network of a run, or the packaged one, as it was saved: what `load` makes a model of, and what is exported."""

from __future__ import annotations

import hashlib
from pathlib import Path

from facetric.embedder import Network, build_network, load_network
from facetric.embedder.checkpoint import network_fingerprint
from facetric.embedder.encoder import PictureFormat
from facetric.embedder.onnx_export import Source
from facetric.runs import Run, RunFolderError

PACKAGED = "tf_efficientnet_lite0"


def saved_network(run: Path | None, checkpoint: str) -> Source:
    """The embedder of a run, or the packaged one, as it was saved."""
    if run is None:
        embedder = build_network(PACKAGED, weights="packaged").eval()
        return Source(embedder, PictureFormat(max(256, embedder.input_spec.size)), _backbone_fingerprint(embedder), features=True)
    opened = Run(run)
    data, weights = opened.config.data, opened.checkpoint(checkpoint)
    fingerprint = network_fingerprint(weights)
    embedder = load_network(weights)
    if network_fingerprint(weights) != fingerprint:
        raise RunFolderError(f"{weights} was replaced while it was read, the run is still training: load it again")
    drawings = data.name == "glyphs"  # drawn at their size, and padded; photos are stretched to data.size
    form = PictureFormat(int(data.options.get("size", 32)), data.pad) if drawings else PictureFormat(data.size)
    return Source(embedder, form, fingerprint)


def _backbone_fingerprint(embedder: Network) -> str:
    digest = hashlib.sha256(f"{embedder.name} features".encode())
    for name, tensor in sorted(embedder.backbone.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
