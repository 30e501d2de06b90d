"""A model to share: a folder, or a repository on the hub, that holds a network and nothing that it was trained on.

    model.safetensors        the backbone, by timm's names
    head/                    the linear head, if there is one: model.safetensors, and what Sentence Transformers calls it
    config.json              timm's description and, under "facetric", how the network is built and fed, its fingerprint, its pair
                             model and the checksums of the other files; written last
    README.md                the card
    modules.json, sentence_bert_config.json    the same network for Sentence Transformers

timm builds the backbone by `create_model("local-dir:FOLDER", pretrained=True)`. Nothing here is code, and `load` runs none.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from facetric.clustering import PairModel
from facetric.embedder.checkpoint import describe, rebuild
from facetric.embedder.hub import fetched
from facetric.embedder.network import Network
from facetric.embedder.weights import WeightsError
from facetric.files import checksummed, read_checksummed, write_atomically
from facetric.text import printable

HUB = "hf://"  # and OWNER/NAME, or OWNER/NAME@REVISION
CONFIG, WEIGHTS, HEAD = "config.json", "model.safetensors", "head/model.safetensors"
_ADDRESS = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_NAMES = (CONFIG, WEIGHTS, HEAD, "head/config.json", "README.md", "modules.json", "sentence_bert_config.json")
_DENSE = {"activation_function": "torch.nn.modules.linear.Identity", "bias": True}


def shared_folder(path: Path) -> Path | None:
    """The folder of a model to share, by its own path or that of its weights, which are but a part; None for other paths."""
    if (path / CONFIG).is_file():  # a run has none
        return path
    config = path.with_name(CONFIG)
    is_part = path.name == WEIGHTS and config.is_file() and b'"facetric"' in config.read_bytes()
    return path.parent if is_part else None


def write_shared(
    network: Network,
    folder: Path,
    *,
    fingerprint: str,
    pair_model: PairModel | None,
    fitted_to: str,
    report: str,
    address: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the folder. `report` is what its card says of data and scores, `address` where the card says that it is found."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{printable(folder)} is a file: choose another name for the folder")
    if folder.is_dir() and any(folder.iterdir()):
        if shared_folder(folder) is None:
            raise ValueError(f"{printable(folder)} holds other files: choose a new folder, a model to share is all that it holds")
        if not overwrite:
            raise ValueError(f"{printable(folder)} exists: choose another name, or pass overwrite=True")
    tensors, spec = describe(network)
    backbone = {name.removeprefix("backbone."): tensor for name, tensor in tensors.items() if name.startswith("backbone.")}
    files = {WEIGHTS: save(backbone, metadata={"format": "pt"})}
    if spec["dim"] is not None:
        head = {f"linear.{name.removeprefix('head.')}": tensor for name, tensor in tensors.items() if name.startswith("head.")}
        files[HEAD] = save(head, metadata={"format": "pt"})
        dense = {"in_features": network.n_features, "out_features": network.dim, **_DENSE}
        files["head/config.json"] = _json(dense)
    record = {
        "made_by": f"facetric {version('facetric')}",
        "network": {**spec, "sha256": fingerprint},
        "pair_model": pair_model.as_dict() if fitted_to and pair_model is not None else None,
        "classes": fitted_to.partition(" of ")[0],  # without the name of the run
        "report": report,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    timm = _timm_config(network)
    if timm and network.pooling == "average" and not network.preprocessing.pad:
        files |= _sentence_transformers(network)
    files["README.md"] = _card(network, timm, address, report, has_modules="modules.json" in files)
    files[CONFIG] = _json({**timm, "facetric": json.loads(checksummed(record))})
    for name in _NAMES:
        (folder / name).unlink(missing_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)


def fetch_shared(address: str) -> Path:
    """The folder, in the hub's cache, with the model at hf://OWNER/NAME or hf://OWNER/NAME@REVISION, all of one commit."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"a model on the hub is hf://OWNER/NAME or hf://OWNER/NAME@REVISION; got {address!r}: check the address")
    repo, revision = found["repo"], found["revision"]
    config = fetched(repo, CONFIG, revision=revision)
    for name, sha256 in _record(config, address)["files"].items():
        if name in (WEIGHTS, HEAD):
            fetched(repo, name, revision=config.parent.name, sha256=sha256)
    return config.parent


def read_shared(folder: Path, *, name: str) -> tuple[Network, dict[str, Any]]:
    """The network in a folder, and what an `Embedder` knows of it; a WeightsError for any other folder, that calls it `name`."""
    record = _record(folder / CONFIG, name)
    try:
        spec = dict(record["network"])
        tensors: dict[str, Tensor] = {f"backbone.{key}": tensor for key, tensor in load_file(folder / WEIGHTS).items()}
        if spec["dim"] is not None:
            head = load_file(folder / HEAD)
            tensors |= {f"head.{key.removeprefix('linear.')}": tensor for key, tensor in head.items()}
        known = {"fingerprint": str(spec["sha256"]), "fitted_to": str(record["classes"]), "report": str(record["report"])}
        pair_model = None if record["pair_model"] is None else PairModel.from_dict(record["pair_model"])
    except (OSError, SafetensorError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise WeightsError(f"{printable(name)} is not whole ({error}): fetch it or save it again") from error
    return rebuild(tensors, spec, name), {**known, "pair_model": pair_model}


def _record(config: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "facetric" not in content:
            timm = ": a model of timm is hf-hub:OWNER/NAME, or its model.safetensors" if "architecture" in content else ""
            raise WeightsError(f"{printable(name)} is not a model that facetric saved{timm or ': check the name'}")
        return read_checksummed(json.dumps(content["facetric"]).encode())
    except WeightsError:
        raise
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise WeightsError(
            f"{printable(name)} is damaged, its {CONFIG} cannot be used ({error}): fetch or save it again"
        ) from error


def _timm_config(network: Network) -> dict[str, Any]:
    """What timm and transformers need to build the backbone and to feed it; empty for a backbone that is not timm's."""
    known, form = getattr(network.backbone, "pretrained_cfg", None), network.preprocessing
    if not isinstance(known, Mapping) or not known.get("architecture"):
        return {}
    fraction = form.crop / form.size
    while math.floor(form.crop / fraction) < form.size:  # timm's way back from it
        fraction = math.nextafter(fraction, 0)
    options: dict[str, Any] = {}
    if known.get("fixed_input_size") and tuple(known["input_size"][1:]) != (form.crop, form.crop):
        options["img_size"] = form.crop
    if isinstance(pool := getattr(network.backbone, "global_pool", None), str):
        options["global_pool"] = pool
    about = {key: known[key] for key in ("first_conv", "classifier", "fixed_input_size", "license") if known.get(key) is not None}
    return {
        "architecture": known["architecture"],
        "num_classes": 0,
        "num_features": network.n_features,
        **({"model_args": options} if options else {}),
        "pretrained_cfg": {
            **about,
            "custom_load": False,
            "input_size": [form.channels, form.crop, form.crop],
            "interpolation": "bilinear",
            "crop_pct": fraction,
            "crop_mode": "squash" if form.fit == "stretch" else "center",
            "mean": form.mean,
            "std": form.std,
            "num_classes": 0,
            "pool_size": None,
        },
    }


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()


def _sentence_transformers(network: Network) -> dict[str, bytes]:
    """What makes it a model of Sentence Transformers, by that library's own modules."""
    image = {"image": {"method": "forward", "method_output_name": "pooler_output"}}
    wrapper = {"transformer_task": "feature-extraction", "modality_config": image, "module_output_name": "sentence_embedding"}
    normalize = ("", "sentence_transformers.sentence_transformer.modules.normalize.Normalize")
    modules = [("", "sentence_transformers.base.modules.transformer.Transformer")]
    if isinstance(network.head, nn.Linear):
        dense = ("head", "sentence_transformers.base.modules.dense.Dense")
        modules += [normalize, dense] if network.normalize_features else [dense]
    modules += [normalize] * network.normalize
    listed = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(modules)]
    return {"modules.json": _json(listed), "sentence_bert_config.json": _json(wrapper)}


def _card(network: Network, timm: Mapping[str, Any], address: str | None, report: str, *, has_modules: bool) -> bytes:
    """README.md, with the header that the hub reads."""
    form, own = network.preprocessing, timm.get("pretrained_cfg", {}).get("license")
    tags = ["facetric", "metric-learning", *(["timm"] if timm else []), *(["sentence-transformers"] if has_modules else [])]
    lines = [
        "---",
        *([f"license: {own}"] if own else []),
        "library_name: facetric",
        "pipeline_tag: image-feature-extraction",
        f"tags: [{', '.join(tags)}]",
        "---",
        f"# Images to vectors: {network.name}",
        "",
        f"{network.name} for {'gray ' if form.channels == 1 else ''}images of {form.crop} × {form.crop} pixels gives vectors of "
        f"{network.dim} numbers{' and length one' if network.normalize else ''}; those of one class are similar.",
        "",
        "```python",
        "import facetric",
        "",
        f'model = facetric.load("{address or "PATH OF THIS FOLDER"}")',
        'vectors = model.encode(["one.jpg", "another.jpg"])',
        "```",
        "",
        report or "## Scores\n\nIt was not evaluated.",
        "",
        "## License",
        "",
        (f"The pretrained weights of {network.name} are {own}, by timm's record. " if own else "No license is recorded. ")
        + "No photo, and no name of a file or class, is in this model.",
    ]
    return ("\n".join(lines) + "\n").encode()
