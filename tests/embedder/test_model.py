"""`facetric.load`: one model for paths, folders, images and arrays, with the vectors that `facetric evaluate` gives."""

import ast
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import facetric
from evaluation.run_folders import make_pictures, make_run
from facetric.clustering import FacilityLocation
from facetric.embedder import Vectors, build_network
from facetric.images.readers import load_dataset
from facetric.photos import open_collection
from facetric.runs import Manifest, Run, open_run
from facetric.runs.config_file import parse_config
from facetric.runs.manifest import new_images


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_pictures(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture(scope="module")
def run(tmp_path_factory, root):
    return make_run(tmp_path_factory.mktemp("runs"), root=root)


@pytest.fixture(scope="module")
def packaged():
    return facetric.load()


def photo(seed=0, size=(300, 200)):
    """Soft shapes: a picture that a network sees something in."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def test_the_vectors_are_those_of_evaluate(run):
    open_run(run).evaluate(n_restarts=1, facility=False)
    kept = Vectors.load(run / "embeddings.npz")
    model = facetric.load(run)
    np.testing.assert_allclose(model.encode(list(kept.names)), kept.vectors, atol=1e-6)
    assert model.fingerprint == kept.source["model"]
    assert model.dim == kept.vectors.shape[1] == 16


def test_the_vectors_of_padded_drawings_are_those_of_evaluate(tmp_path):
    config = parse_config(
        {
            "run": {"name": "drawn", "folder": str(tmp_path), "validate_every": 0},
            "data": {"name": "glyphs", "options": {"min_images": 17, "size": 40}, "pad": 3},
            "loss": {"name": "facility_location", "margin_weight": 1.0},
        }
    )
    opened = Run.of(config)
    opened.create(config, {}, Manifest.of(new_images(config.data, validate=False), None))
    opened.save(build_network("glyphnet", dim=8, weights="none", size=40, pad=3), "last")
    opened.evaluate(n_restarts=1, facility=False)
    pictures = load_dataset("glyphs", min_images=17, size=40).select("test").images
    found = facetric.load(opened.path).encode(pictures[:, :, :, None].repeat(3, axis=3)[:50])
    np.testing.assert_allclose(found, opened.embeddings().vectors[:50], atol=1e-6)


def test_paths_folders_images_arrays_and_lists_of_them_are_one_thing(run, root):
    model = facetric.load(run)
    first = sorted((root / "class00").iterdir())
    by_folder = model.encode(root / "class00")
    images = [Image.open(path) for path in first]
    arrays = [np.asarray(image) for image in images]
    for same in (first, [str(path) for path in first], images, arrays, np.stack([np.asarray(i.convert("RGB")) for i in images])):
        np.testing.assert_array_equal(model.encode(same), by_folder)
    assert by_folder.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(by_folder, axis=1), 1, atol=1e-6)
    mixed = model.encode([root / "class00", [images[1], arrays[2]], str(first[3])])
    np.testing.assert_allclose(mixed, by_folder[[0, 1, 2, 3, 1, 2, 3]], atol=1e-6)
    assert model.encode(first[0]).shape == (1, 16)
    assert model.encode([]).shape == (0, 16)


def test_pictures_are_turned_upright_as_in_training(packaged, tmp_path):
    upright = photo()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as turned:
        for same in (tmp_path / "turned.png", turned):
            np.testing.assert_allclose(packaged.encode(same), packaged.encode(upright), atol=1e-6)
    assert (packaged.encode(upright.rotate(90, expand=True)) @ packaged.encode(upright).T).item() < 0.999


def test_the_packaged_network_needs_no_run_and_sees_what_is_alike(packaged):
    vectors = packaged.encode([photo(0), photo(0, (150, 100)), photo(1)])
    assert vectors.shape == (3, packaged.dim)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert 1 - vectors[0] @ vectors[1] < (1 - vectors[0] @ vectors[2]) / 2
    assert packaged.pair_model is None
    assert packaged.fitted_to == ""
    assert packaged.fingerprint == facetric.load().fingerprint
    assert "lite0" in repr(packaged)


def test_a_picture_has_the_same_bits_whatever_it_is_embedded_with(packaged):
    photos = [photo(seed) for seed in range(11)]
    together = packaged.encode(photos)
    np.testing.assert_array_equal(packaged.encode(photos[0]), together[:1])
    np.testing.assert_array_equal(packaged.encode(photos[7:]), together[7:])
    np.testing.assert_array_equal(packaged.encode(photos, n_threads=3), together)


def test_one_photo_is_one_image_through_the_network(packaged, monkeypatch):
    sizes = []
    engine = packaged._engine
    whole = type(engine).forward
    monkeypatch.setattr(type(engine), "forward", lambda network, images: sizes.append(len(images)) or whole(network, images))
    packaged.encode(photo())
    assert sizes == [1]
    packaged.encode([photo(seed) for seed in range(3)], batch_size=2)
    assert sorted(sizes[1:]) == [1, 2]  # threads take the batches: either may come first


def test_a_trained_network_is_saved_with_its_preprocessing_and_loaded_without_anything_else(tmp_path):
    network = build_network("glyphnet", dim=8, weights="none", size=40, pad=3)
    network.train()
    embedder = facetric.Embedder(network)
    vectors = embedder.encode([photo(seed) for seed in range(3)])
    embedder.save(tmp_path / "own.safetensors")
    found = facetric.load(tmp_path / "own.safetensors")
    assert (found.preprocessing.size, found.preprocessing.pad, found.fingerprint) == (40, 3, embedder.fingerprint)
    np.testing.assert_array_equal(found.encode([photo(seed) for seed in range(3)]), vectors)
    assert pickle.loads(pickle.dumps(embedder)).fingerprint == embedder.fingerprint
    with pytest.raises(ValueError, match=r"saved as \.safetensors, or as a folder, .*own.pt: name it own\.safetensors"):
        embedder.save(tmp_path / "own.pt")


def test_a_run_is_loaded_by_its_checkpoints_alone(run, root, tmp_path):
    """No configuration, no loss, no manifest: 0.2 built the loss of a run to embed a photo."""
    open_run(run).evaluate(n_restarts=1, facility=False)
    shutil.copytree(run / "checkpoints", tmp_path / "bare" / "checkpoints")
    code = (
        "import sys, facetric; e = facetric.load(sys.argv[1]); e.encode(sys.argv[2]); assert e.fitted_to; "
        "print(sorted({m.split('.')[1] for m in sys.modules if m.startswith('facetric.') and m.count('.') == 1}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "bare", root / "class00"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not {"runs", "photos", "losses", "evaluation", "training"} & set(ast.literal_eval(done.stdout))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "images are a path of a photo or a folder, a PIL image, a uint8 array .*; got int"),
        (None, "got NoneType"),
        ([[3.5, "a.jpg"]], "got float"),
        (np.zeros((4, 4, 3), dtype=np.float32), r"uint8 array of shape .*; got float32 of shape \(4, 4, 3\)"),
        (np.zeros((4, 4, 2), dtype=np.uint8), r"got uint8 of shape \(4, 4, 2\)"),
        (np.zeros((0, 4, 3), dtype=np.uint8), r"got uint8 of shape \(0, 4, 3\)"),
        ("nowhere.jpg", "nowhere.jpg does not exist"),
    ],
)
def test_a_wrong_thing_gets_a_line_that_says_what_is_taken(run, wrong, message):
    with pytest.raises(ValueError, match=message):
        facetric.load(run).encode(wrong)


def test_a_folder_without_photos_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="there are no photos in"):
        facetric.load(run).encode(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("nowhere", "there is no network and no run folder nowhere: `facetric models` lists"),
        (7, "load takes a network or the path of a run folder, or nothing; got int"),
    ],
)
def test_what_is_not_a_run_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        facetric.load(wrong)


def test_a_pickled_model_is_loaded_again_and_never_becomes_another(tmp_path, root):
    run = make_run(tmp_path, root=root)
    model = facetric.load(run)
    stored = pickle.dumps(model)
    assert len(stored) < 1000
    assert pickle.loads(stored).fingerprint == model.fingerprint
    Run(run).save(build_network("glyphnet", dim=16, weights="none", seed=5), "best")
    with pytest.raises(OSError, match="is no longer the model that it was"):
        pickle.loads(stored)


def test_a_pipeline_clusters_a_folder(run, root):
    pipeline = make_pipeline(facetric.Embedding(str(run)), FacilityLocation(n_clusters=2))
    clusters = pipeline.fit_predict([root / "class00", root / "class01"])
    assert len(clusters) == 8
    expected = FacilityLocation(n_clusters=2).fit_predict(facetric.load(run).encode([root / "class00", root / "class01"]))
    np.testing.assert_array_equal(clusters, expected)


def test_the_transformer_is_cloned_pickled_and_described_by_its_parameters(run, root):
    one = facetric.Embedding(str(run), checkpoint="best")
    assert one.get_params() == {"run": str(run), "checkpoint": "best", "device": "auto"}
    vectors = one.fit(None).transform(root / "class00")
    copies = (clone(one), pickle.loads(pickle.dumps(one)))
    for copy in copies:
        assert copy.get_params() == one.get_params()
        np.testing.assert_array_equal(copy.transform(root / "class00"), vectors)
    assert len(pickle.dumps(one)) < 1000
    assert one.get_feature_names_out()[[0, 15]].tolist() == ["embedding0", "embedding15"]
    with pytest.raises(ValueError, match="there is no network and no run folder"):
        one.set_params(run="nowhere").transform(root / "class00")


def test_a_run_that_was_not_evaluated_groups_by_what_comes_with_the_install(tmp_path):
    run = make_run(tmp_path / "runs", root=make_pictures(tmp_path / "pictures", n_classes=6))
    album = open_collection(tmp_path / "album", facetric.load(run))
    album.add(tmp_path / "pictures")
    assert len(album.cluster(n_clusters=3).sizes) == 3
    assert "was learned from other kinds of photos" in album.cluster().made_by
