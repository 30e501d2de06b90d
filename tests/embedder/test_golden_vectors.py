"""Vectors that 0.2 gave for images of the install; whatever changes inside, these stay."""

from pathlib import Path

import numpy as np
import pytest

from facetric.embedder import Embedder, build_network, encode
from facetric.embedder.onnx_export import MANY, sample_images
from facetric.images import Arrays, load_dataset


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parent / "golden_vectors.npz") as kept:
        return dict(kept)


def stretched():
    """The packaged network, with photos made square as 0.2 made them."""
    return Embedder(build_network("tf_efficientnet_lite0", dim=None, weights="packaged", fit="stretch").eval())


def test_the_packaged_network_gives_the_vectors_of_0_2(golden):
    found = stretched().encode(sample_images(4))
    np.testing.assert_allclose(found, golden["photos"], atol=1e-5)


def test_onnxruntime_gives_the_vectors_of_0_2(golden, tmp_path, monkeypatch):
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path))
    model = stretched()
    model.prepare(MANY)
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_allclose(model.encode(sample_images(4)), golden["photos"], atol=1e-6)


def test_a_network_from_a_seed_gives_the_vectors_of_0_2(golden):
    images = np.pad(load_dataset("glyphs", min_images=17).images[::80][:8], ((0, 0), (3, 3), (3, 3)))
    found = encode(build_network("glyphnet", dim=16, weights="none", seed=0), Arrays(images))
    np.testing.assert_allclose(found, golden["glyphs"], atol=1e-5)
