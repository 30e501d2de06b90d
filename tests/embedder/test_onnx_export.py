"""`facetric export` and the ONNX engine: the vectors of torch, or no file."""

import hashlib
import json
import os
import pickle
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import facetric
from evaluation.run_folders import make_pictures, make_run
from facetric.cli.main import app
from facetric.embedder import Embedder, Vectors, build_network, encode, network_fingerprint, onnx_export
from facetric.embedder.onnx_engine import OnnxEngine, read_engine
from facetric.embedder.onnx_export import MANY, sample_images, write_export
from facetric.images import Files, find_caches
from facetric.photos import embed_folder, open_collection
from photos.photo_files import write_photos


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module", autouse=True)
def exported_once():
    """torch's exporter takes seconds: equal networks with equal preprocessing are exported once."""
    made, export = {}, onnx_export._graph

    def kept(network, takes):
        key = (network_fingerprint(network), takes, onnx_export._Graph.crops)
        if key not in made:
            made[key] = export(network, takes)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_export, "_graph", kept)
        yield made


@pytest.fixture(scope="module")
def run(evaluated_run):
    return evaluated_run


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    write_photos(root, 9)
    return root


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """The file of the run, written by the command."""
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    result = invoke("export", run, path)
    assert result.exit_code == 0, result.stderr
    assert "input: uint8 (n, 36, 36, 1): an upright gray image, stretched to 36 × 36" in result.stdout
    assert "images differ from torch by at most" in result.stdout
    assert os.listdir(path.parent) == ["model.onnx"]
    return path


def metadata(path):
    return json.loads({entry.key: entry.value for entry in onnx.load(path).metadata_props}["facetric"])


def test_an_exported_file_gives_the_vectors_of_the_run(run, exported, photos):
    model, other = facetric.load(run), facetric.load(exported)
    np.testing.assert_allclose(other.encode(photos), model.encode(photos), atol=2e-6)
    assert other.fingerprint == model.fingerprint
    assert other.dim == model.dim == 16
    assert other.pair_model.as_dict() == model.pair_model.as_dict()
    assert other.fitted_to == model.fitted_to != ""
    assert "model.onnx" in repr(other)
    assert other.encode([]).shape == (0, 16)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_onnxruntime_alone_takes_any_number_of_pictures(run, exported, photos, n):
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    paths = sorted(photos.rglob("*.jpg"))[:n]
    pictures = [np.asarray(Image.open(path).convert("L").resize((36, 36), Image.Resampling.BILINEAR)) for path in paths]
    (vectors,) = session.run(["vectors"], {"images": np.stack(pictures)[..., None]})
    np.testing.assert_allclose(vectors, facetric.load(run).encode(paths), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_metadata_says_what_the_file_is_and_names_no_class_image_or_path(run, exported):
    onnx.checker.check_model(exported)
    record, model = metadata(exported), facetric.load(run)
    assert record["fingerprint"] == model.fingerprint
    assert record["pair_model"] == model.pair_model.as_dict()
    form = {"size": 36, "pad": 0, "crop": 32, "channels": 1, "mean": [0.5], "std": [0.5], "fit": "stretch"}
    assert record["preprocessing"] == form
    assert (record["takes"], record["dim"], record["normalize"], record["n_checked"]) == ("images", 16, True, 16)
    assert 0 <= record["difference"] < 1e-5
    for secret in (b"secret-pictures", b"class0", os.fsencode(run.parent), b"site-packages", b".py"):
        assert secret not in exported.read_bytes()


def test_a_graph_that_crops_elsewhere_is_never_put_in_place(run, tmp_path, monkeypatch):
    def shifted(self, pictures):
        cropped = pictures[:, : self.form.crop, : self.form.crop].float()
        return ((cropped / 255 - self.mean) / self.std).permute(0, 3, 1, 2)

    (tmp_path / "kept.onnx").write_bytes(b"before")
    monkeypatch.setattr(onnx_export._Graph, "crops", shifted)
    for path, options in ((tmp_path / "new.onnx", ()), (tmp_path / "kept.onnx", ("--overwrite",))):
        result = invoke("export", run, path, *options)
        assert result.exit_code == 1
        assert "onnxruntime and torch differ by" in result.stderr
        assert "more than 1e-04: nothing was written" in result.stderr
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept.onnx", b"before")]


def test_an_existing_file_is_replaced_when_asked_to(run, photos, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"mine")
    result = invoke("export", run, path)
    assert (result.exit_code, path.read_bytes()) == (2, b"mine")
    assert "exists: choose another name, or pass --overwrite" in result.stderr
    result = invoke("export", run, path, "--overwrite", "--check", photos)
    assert result.exit_code == 0, result.stderr
    assert metadata(path)["n_checked"] == 9


def test_a_run_that_was_not_evaluated_is_exported_without_a_pair_model_of_its_own(tmp_path):
    run = make_run(tmp_path, root=make_pictures(tmp_path / "pictures"))
    result = invoke("export", run, tmp_path / "model.onnx")
    assert result.exit_code == 0, result.stderr
    assert "have not taught yet which photos belong together: run `facetric evaluate" in result.stderr
    assert metadata(tmp_path / "model.onnx")["pair_model"] is None
    assert facetric.load(tmp_path / "model.onnx").pair_model is None


def test_drawings_are_padded_in_the_graph(tmp_path):
    network = build_network("glyphnet", dim=8, weights="none", size=26, pad=4).eval()  # 34 pixels, cropped to 32
    images = Files(image.convert("L") for image in sample_images(5))
    write_export(network, tmp_path / "m.onnx", "f", images)
    np.testing.assert_allclose(encode(read_engine(tmp_path / "m.onnx"), images), encode(network, images), atol=2e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet10t", {"freeze_through": "layer2", "normalize_features": True, "normalize": False}),
        pytest.param("resnet10t", {"freeze_through": "layer2"}, marks=pytest.mark.slow),
        pytest.param("convnext_atto", {"normalize_features": True}, marks=pytest.mark.slow),
        pytest.param("vit_tiny_patch16_224", {"normalize": False}, marks=pytest.mark.slow),
    ],
)
def test_other_networks_frozen_whitened_or_of_any_length_are_the_same(name, options, tmp_path):
    network = build_network(name, dim=8, weights="none", image_size=64, size=72, **options).eval()
    images = Files(sample_images(6))
    made = write_export(network, tmp_path / "m.onnx", "f", images)
    assert made.difference < 1e-5
    assert made.normalize == network.normalize
    found, expected = encode(read_engine(tmp_path / "m.onnx"), images), encode(network, images)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_picture_has_the_same_bits_whatever_it_is_embedded_with(exported):
    model = facetric.load(exported)
    pictures = sample_images(11)
    together = model.encode(pictures)
    np.testing.assert_array_equal(model.encode(pictures[4:5]), together[4:5])
    torch.set_num_threads(torch.get_num_threads() + 1)
    try:
        np.testing.assert_array_equal(model.encode(pictures), together)
    finally:
        torch.set_num_threads(torch.get_num_threads() - 1)


def test_embed_with_a_file_writes_the_vectors_of_torch_under_the_same_fingerprint(run, exported, photos, tmp_path):
    embed_folder(photos, facetric.load(run), tmp_path / "torch.npz")
    result = invoke("embed", photos, "--model", exported, "-o", tmp_path / "file.npz")
    assert result.exit_code == 0, result.stderr
    found, expected = Vectors.load(tmp_path / "file.npz"), Vectors.load(tmp_path / "torch.npz")
    assert (found.names, found.hashes, found.model) == (expected.names, expected.hashes, expected.model)
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=2e-6)
    assert "(0 embedded now" in invoke("embed", photos, "--model", exported, "-o", tmp_path / "torch.npz").stdout


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("FACETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_many_images_are_embedded_by_onnxruntime_with_an_export_that_is_kept(run, photos, cache, exported_once):
    model = facetric.load(run)
    expected = model.encode(photos)
    assert not isinstance(model._engine, OnnxEngine)  # an export would take longer than nine photos
    assert not cache.exists()
    model.prepare(MANY)
    np.testing.assert_allclose(model.encode(photos), expected, atol=1e-6)
    assert isinstance(model._engine, OnnxEngine)
    (kept,) = cache.iterdir()
    assert kept.name == f"glyphnet-{model.fingerprint[:16]}.onnx"
    assert [(cache.path, cache.kind, cache.state) for cache in find_caches()] == [(kept, "exported network", "current")]
    exported_once.clear()
    other = facetric.load(run)
    np.testing.assert_array_equal(other.encode(photos), model.encode(photos))  # from now on also for a few
    np.testing.assert_array_equal(other.encode(sorted(photos.rglob("*.jpg"))[4:5]), other.encode(photos)[4:5])
    assert not exported_once  # not exported again


@pytest.mark.parametrize("content", [b"damaged", "another network's", "a changed byte"])
def test_a_kept_export_that_cannot_be_used_is_made_again(run, photos, cache, content):
    model, other = facetric.load(run), Embedder(build_network("glyphnet", dim=16, weights="none", size=36, seed=5).eval())
    model.prepare(MANY)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    if content == "another network's":
        other.prepare(MANY)
        (content,) = (path.read_bytes() for path in cache.iterdir() if path != kept)
    elif content == "a changed byte":
        content = bytearray(whole)
        content[len(whole) // 2] ^= 1
    kept.write_bytes(content)
    again = facetric.load(run)
    np.testing.assert_array_equal(again.encode(photos), model.encode(photos))
    assert isinstance(again._engine, OnnxEngine)
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("missing", ["onnxruntime", "onnx", "a folder"])
def test_torch_does_it_in_one_line_where_onnxruntime_cannot(run, photos, cache, monkeypatch, caplog, missing):
    if missing == "a folder":
        cache.write_bytes(b"")
    else:
        monkeypatch.setitem(sys.modules, missing, None)
    model = facetric.load(run)
    expected = model.encode(photos)
    model.prepare(MANY)
    model.prepare(MANY)
    np.testing.assert_array_equal(model.encode(photos), expected)
    assert [record.message.startswith("torch is used, onnxruntime would be faster: ") for record in caplog.records] == [True]


def test_an_index_made_with_torch_is_searched_with_the_file(run, exported, photos, tmp_path):
    index = open_collection(tmp_path / "photos.index", facetric.load(run))
    index.add(photos)
    path = next(photos.rglob("*.jpg"))
    (match,) = open_collection(tmp_path / "photos.index", facetric.load(exported)).search(path, top=1)
    assert match.hits[0].similarity > 0.99999
    assert match.hits[0].entry.path.endswith(path.name)


def test_an_index_made_with_the_file_is_searched_without_naming_it(exported, photos, tmp_path):
    index, path = tmp_path / "photos.index", next(photos.rglob("*.jpg"))
    assert invoke("index", "add", index, photos, "--model", exported).exit_code == 0
    found = invoke("search", index, path, "--top", 1)
    assert found.exit_code == 0, found.stderr
    assert f"1.000  {path}" in found.stdout


def test_pickled_models_are_loaded_again_by_the_same_engine(exported, photos):
    model = facetric.load(exported)
    stored = pickle.dumps(model)
    assert len(stored) < 1000
    np.testing.assert_array_equal(pickle.loads(stored).encode(photos), model.encode(photos))


def damaged(path, tmp_path, what):
    """A copy of the file with something wrong."""
    content, other = bytearray(path.read_bytes()), tmp_path / "other.onnx"
    if what == "changed weights":
        content[len(content) // 3] ^= 1
    elif what == "changed record":
        content[content.rindex(b'"n_checked": ') + 14] ^= 1  # another digit
    elif what == "longer":
        content += b"more"
    elif what == "cut":
        del content[len(content) // 2 :]
    elif what == "text":
        content = bytearray(b"not a model")
    other.write_bytes(content)
    if what == "another program's":
        value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "g", [value], [onnx.helper.make_tensor_value_info("y", 1, [1])])
        imports = [onnx.helper.make_opsetid("", 18)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=9), other)
    if what == "saved again":
        model = onnx.load(path)
        model.graph.name = "optimized"
        onnx.save(model, other)
    if what == "missing":
        other.unlink()
    return other


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("changed weights", r"was changed after its export .* its vectors may not be those of the model: export it again"),
        ("saved again", r"was changed after its export .* its vectors may not be those of the model: export it again"),
        ("changed record", r"was changed after its export \(its checksum is wrong\)"),
        ("longer", "was changed after its export"),
        ("cut", "was changed after its export|does not end with a record of facetric"),
        ("text", "does not end with a record of facetric"),
        ("another program's", "does not end with a record of facetric, it is of another program or cut off: export it again"),
        ("missing", "does not exist: pass a file that `facetric export` wrote"),
    ],
)
def test_a_file_that_is_not_what_was_exported_is_refused_in_one_line(exported, photos, tmp_path, what, message):
    other = damaged(exported, tmp_path, what)
    with pytest.raises(ValueError, match=message):
        facetric.load(other)
    result = invoke("embed", photos, "--model", other, "-o", tmp_path / "v.npz")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.stderr


def test_the_checksum_is_that_of_everything_before_the_record(exported):
    record, content = metadata(exported), exported.read_bytes()
    assert hashlib.sha256(content[: record["graph_bytes"]]).hexdigest() == record["graph_sha256"]


def test_what_cannot_be_is_refused_with_the_way_out(run, exported, tmp_path):
    for wrong, message in [
        (lambda: facetric.load(exported, device="cuda"), "an exported file is run on the CPU; got device 'cuda'"),
        (lambda: facetric.load(exported).export(tmp_path / "a.onnx"), "is exported already"),
        (lambda: facetric.load(run).export(tmp_path / "model.pt"), "exported to .onnx files; got .*: name it model.onnx"),
        (lambda: facetric.load(run).export(tmp_path / "no" / "a.onnx"), "no does not exist: create it"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
    assert invoke("export", run, run, tmp_path / "a.onnx").exit_code == 2
    assert os.listdir(tmp_path) == []


def test_a_missing_onnxruntime_is_named(run, exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for attempt in (lambda: facetric.load(exported), lambda: facetric.load(run).export(tmp_path / "a.onnx")):
        with pytest.raises(ValueError, match=r"not installed: pip install 'facetric\[photos\]'"):
            attempt()


def test_a_run_folder_may_be_named_like_a_file(tmp_path):
    run = make_run(tmp_path, name="first.onnx", root=make_pictures(tmp_path / "pictures"))
    model = facetric.load(run)
    assert not isinstance(model.network, OnnxEngine)
    assert not model.fitted_to
