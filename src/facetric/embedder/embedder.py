"""`Embedder`: images in, vectors out. `load` makes it, or `Embedder(network)` of one that you trained."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.clustering import PairModel
from facetric.embedder.backbones import build_network
from facetric.embedder.checkpoint import (
    is_described,
    load_network,
    network_fingerprint,
    pair_model_file,
    read_pair_model,
    save_network,
    write_pair_model,
)
from facetric.embedder.encode import encode, usable_device
from facetric.embedder.hub import pushed
from facetric.embedder.module import ModuleBackbone, module_network
from facetric.embedder.network import Network
from facetric.embedder.networks import DEFAULT, NETWORKS, is_network_name, unknown_network
from facetric.embedder.onnx_engine import OnnxDescription, OnnxEngine, read_engine
from facetric.embedder.onnx_export import MANY, check_place, kept_engine, sample_images, write_export
from facetric.embedder.shared import HUB, WEIGHTS, fetch_shared, read_shared, shared_folder, write_shared
from facetric.images import Files, Preprocessing, as_source
from facetric.progress import steps_shown
from facetric.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKPOINTS = ("best", "last")

ImageLike: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | Sequence[ImageLike]"


class Embedder:
    """Images in, vectors out.

    Vectors have length one, so that their dot products are cosine similarities; only a network with `normalize=False` gives
    vectors of any length. They are those of `facetric evaluate` for the same images. Pickling what `load` gave stores where it
    came from, not its weights. The network is put in eval mode; one that is trained further needs another Embedder.

    Attributes:
        network: what is run, a `Network` or an exported one.
        fingerprint: a hash of the network: vectors can be compared if theirs are equal.
        pair_model: how probable it is that two images are of one class. It was fitted to validation classes by the run's
            evaluation or, where those are too few, to the test classes; None for the one that comes with the install.
        fitted_to: these classes, in words; empty for the one that comes with the install.
        report: of a model to share, what its card says of data and scores, in Markdown.
        name: which network it is: lite0, say, or the name of the run folder or file.
        run: the network, run folder, file or address on the hub that was asked for; None for the packaged network and for one in
            memory.
        file: the checkpoint of `run`, or the file itself.
        dim: the length of a vector.
        preprocessing: how an image becomes the network's input.
        device: where it runs.
    """

    def __init__(
        self,
        network: Network | OnnxEngine,
        *,
        fingerprint: str | None = None,
        pair_model: PairModel | None = None,
        fitted_to: str = "",
        report: str = "",
        file: Path | None = None,
        origin: tuple[str | None, str, str] | None = None,
    ) -> None:
        if not isinstance(network, Network):  # an exported file knows these
            about = network.description
            fingerprint, fitted_to = about.fingerprint, about.fitted_to
            pair_model = None if about.pair_model is None else PairModel.from_dict(about.pair_model)
        self.network = network
        self.fingerprint = network_fingerprint(network) if fingerprint is None else fingerprint  # type: ignore[arg-type]
        self.pair_model, self.fitted_to = pair_model, fitted_to
        self.report = report
        self.dim, self.preprocessing = network.dim, network.preprocessing
        self.file, self.device = file, network.device
        self.origin = origin  # the arguments of `load`
        self.run = None if origin is None else origin[0]
        if self.run is None:
            self.name = DEFAULT if origin else network.name
        else:
            self.name = self.run if is_network_name(self.run) else Path(self.run).name
        self._engine = network.for_inference() if isinstance(network, Network) else network
        self._tried: set[bool] = set()  # to use an export that is kept (False), and to make one (True)

    @classmethod
    def from_module(
        cls,
        module: Callable[..., Any],
        transform: Callable[[Image.Image], Any] | Preprocessing | None = None,
        *,
        name: str | None = None,
        fingerprint: str | None = None,
    ) -> Embedder:
        """The embedder of a network of your own: a torch module, a method of one such as `model.encode_image`, or any function
        from a batch of images, a tensor (n, channels, height, width), to vectors (n, dim).

        `transform` maps an upright RGB PIL image to such a tensor of one image, as torchvision's and timm's do; without it, one
        of timm's networks gets its own, and any other the central 224 × 224 pixels, normalized as for ImageNet. The fingerprint
        is a hash of the weights and of the transform's repr. A function without weights needs `fingerprint`, another one whenever
        its vectors change; it is called by one thread at a time.
        """
        network, known = module_network(module, transform, name, fingerprint)
        return cls(network, fingerprint=known)

    def __repr__(self) -> str:
        return f"<Embedder of {self.name}: {self.dim} dimensions, {self.fingerprint[:12]}>"

    def encode(
        self,
        images: ImageLike,
        *,
        batch_size: int | None = None,
        n_threads: int | None = None,
        show_progress_bar: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> NDArray[np.float32]:
        """The vectors (n, dim) of images, in their order: one row per image, a folder giving all images below it.

        Takes a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of
        these. Images are turned upright by their EXIF orientation, as in training. On a CPU they go through the network one by
        one, in `n_threads` at once, unless `batch_size` is given: the vector of an image is, to the last bit, the same whatever
        an engine (`prepare`) encodes it with. `progress` is called with ("Embedding", done, n).
        """
        source = as_source(images)
        self.prepare(len(source))
        if batch_size is None and self.device.type == "cpu":
            batch_size = 1
        with steps_shown() if show_progress_bar and progress is None else nullcontext(progress) as told:
            return encode(self._engine, source, batch_size=batch_size, n_threads=n_threads, progress=told)

    def prepare(self, n_images: int) -> None:
        """Choose the engine for so many images; `encode` does so for those that it is given at once.

        On a CPU it is onnxruntime where an export of this network is kept in the cache folder; where none is, it is made for
        2,000 images or more, and torch encodes fewer. Vectors are the same to about 2e-6.
        """
        is_many = n_images >= MANY
        if not isinstance(self._engine, Network) or type(self.preprocessing) is not Preprocessing:
            return
        if self.device.type == "cpu" and is_many not in self._tried:
            self._tried |= {is_many, False}
            self._engine = kept_engine(self._engine, self.fingerprint, export=is_many) or self._engine

    def save(self, path: str | os.PathLike[str], *, report: str = "", overwrite: bool = False) -> None:
        """Write the network with its preprocessing and its pair model, for `load`.

        A path without an ending is a folder to share: it also loads in timm and, of timm's networks, in Sentence Transformers,
        and its README.md is a card, with what `report` says in Markdown of data and scores. Nothing in it names a photo or a
        class. An existing one stays unless `overwrite`. NAME.safetensors is one file, replaced if it exists, with the pair model
        beside it.
        """
        path = Path(path).expanduser()
        network = self._own_network()
        if path.suffix not in ("", ".safetensors"):
            raise ValueError(
                f"a network is saved as .safetensors, or as a folder, without an ending; got {printable(path)}: name it "
                f"{printable(path.stem)}.safetensors or {printable(path.stem)}"
            )
        if not path.suffix:
            write_shared(network, path, overwrite=overwrite, **self._known(report))
            return
        save_network(network, path)
        if self.pair_model is not None:
            write_pair_model(path, self.fingerprint, self.pair_model, self.fitted_to)

    def push_to_hub(self, repository: str, *, token: str | None = None, private: bool = True, report: str = "") -> str:
        """Put the model, as `save` writes it to a folder, into the repository OWNER/NAME of the Hugging Face hub, which is made
        if there is none. Its address with the commit, which `load` takes.

        Without `token` it is that of `hf auth login` or of HF_TOKEN.
        """
        with TemporaryDirectory() as folder:
            place = Path(folder) / "model"
            write_shared(self._own_network(), place, address=f"{HUB}{repository}", **self._known(report))
            return f"{HUB}{repository}@{pushed(place, repository, token=token, private=private)}"

    def _own_network(self) -> Network:
        if not isinstance(self.network, Network):
            raise ValueError(f"{printable(self.run)} is exported, it has no weights to save: copy it, or load the run folder")
        if isinstance(self.network.backbone, ModuleBackbone):
            raise ValueError(f"{self.name} is a module of yours, which cannot be built again: save it with torch, or export it")
        return self.network

    def _known(self, report: str = "") -> dict[str, Any]:
        known = {"fingerprint": self.fingerprint, "pair_model": self.pair_model, "fitted_to": self.fitted_to}
        return known | {"report": report or self.report}

    def save_pair_model(self, pair_model: PairModel, classes: str) -> None:
        """Keep a pair model beside the checkpoint, and in words the classes that taught it; `load` finds it from now on."""
        assert self.file is not None
        self.pair_model, self.fitted_to = pair_model, classes
        write_pair_model(self.file, self.fingerprint, pair_model, classes)

    def export(self, path: str | os.PathLike[str], *, check: ImageLike | None = None, overwrite: bool = False) -> OnnxDescription:
        """Write the model to an ONNX file: preprocessing, network and normalization, for any number of images.

        Its input are uint8 images (n, size, size, channels), upright and as `preprocessing.pixels` makes them. Fingerprint,
        pair model and preprocessing are in its metadata. Before the file is put in place it is run by onnxruntime and compared
        with torch on up to 64 images of `check`, else on photos that come with the install.
        """
        if not isinstance(self.network, Network):
            raise ValueError(f"{printable(self.run)} is exported already: copy it, or pass the run folder")
        if type(self.preprocessing) is not Preprocessing:
            raise ValueError(
                f"the transform of {self.name} is a function, which cannot be written to a file: pass a facetric.images."
                "Preprocessing as transform="
            )
        place = Path(path).expanduser()
        check_place(place, overwrite=overwrite)
        return write_export(
            self.network,
            place,
            self.fingerprint,
            Files(sample_images()) if check is None else as_source(check),
            pair_model=None if self.pair_model is None else self.pair_model.as_dict(),
            fitted_to=self.fitted_to,
        )

    def __reduce__(self) -> Any:
        if self.origin is not None:
            return _loaded_again, (self.origin, self.fingerprint)
        return partial(Embedder, self.network, **self._known()), ()


def load(path: str | os.PathLike[str] | None = None, *, checkpoint: str = "best", device: str = "auto") -> Embedder:
    """The embedder of a network, of a run folder (its best checkpoint, or the last where there is no best), of a checkpoint such
    as birds.safetensors, of a file or folder that `facetric export` wrote, or of such a folder on the Hugging Face hub:
    "hf://OWNER/NAME" or "hf://OWNER/NAME@REVISION".

    A file of weights that timm wrote is taken too, where its config.json lies beside it.

    A network is one that `facetric models` lists ("lite1", "dinov2-small"), "timm:NAME" or "hf-hub:OWNER/NAME". It is not
    trained further, and sees the central square of an image; one that is not here is downloaded once. Such a name is a
    network's even where a folder has it: that is "./lite1", or a `Path`. Without anything: lite0, which comes with the install.
    `device` is auto, cpu, cuda or mps.
    """
    if path is not None and not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"load takes a network or the path of a run folder, or nothing; got {type(path).__name__}: pass lite1, say, or "
            "runs/photos"
        )
    if isinstance(path, str) and path.startswith(HUB):
        return _shared(fetch_shared(path), path, checkpoint, device)
    if is_network_name(path) or path is None:
        asked = None if path == DEFAULT else path
        row = NETWORKS.get(path or DEFAULT)  # type: ignore[arg-type]
        dim = row.dim if row and row.is_projected else None
        network = build_network(path or DEFAULT, dim=dim, fit="crop").eval()  # type: ignore[arg-type]
        return Embedder(network.to(usable_device(device)), origin=(asked, checkpoint, device))  # type: ignore[arg-type]
    where = Path(path).expanduser()
    origin = (str(where.absolute()), checkpoint, device)
    if (folder := shared_folder(where)) is not None:
        return _shared(folder, *origin)
    if where.suffix == ".onnx" and not where.is_dir():
        if device not in ("auto", "cpu"):
            raise ValueError(
                f"an exported file is run on the CPU; got device {device!r}: leave device= out, or pass the run folder"
            )
        return Embedder(read_engine(where), file=where, origin=origin)
    place = usable_device(device)
    if not where.exists() and where.name == str(path) and where.suffix != ".safetensors":
        raise unknown_network(str(path))
    if where.suffix == ".safetensors" and where.with_name("config.json").is_file() and not is_described(where):
        network = build_network(str(where), dim=None, fit="crop").eval()
        return Embedder(network.to(place), file=where, origin=origin)
    weights = _checkpoint_file(where, checkpoint) if where.is_dir() or not where.suffix else where
    network, fingerprint = load_network(weights), network_fingerprint(weights)
    pair_model, fitted_to = read_pair_model(pair_model_file(weights), fingerprint)
    known: dict[str, Any] = {"fingerprint": fingerprint, "pair_model": pair_model, "fitted_to": fitted_to}
    return Embedder(network.to(place), **known, file=weights, origin=origin)


def _shared(folder: Path, *origin: Any) -> Embedder:
    """A model to share, by the folder where it is, and the arguments of `load`."""
    network, known = read_shared(folder, name=origin[0])
    return Embedder(network.to(usable_device(origin[2])), **known, file=folder / WEIGHTS, origin=origin)


def _checkpoint_file(run: Path, wanted: str) -> Path:
    """The file of a run's best network (the last one where there is no best), or of the last one."""
    if wanted not in CHECKPOINTS:
        raise ValueError(f"checkpoint must be one of {', '.join(CHECKPOINTS)}; got {wanted!r}: choose one of these")
    if not run.is_dir():
        what = "is a file, not a run folder" if run.exists() else "does not exist"
        raise ValueError(f"{run} {what}: pass a run folder such as runs/photos")
    folder = run / "checkpoints"
    if not folder.is_dir():
        raise ValueError(f"{run} has no checkpoints, so it is not a run: pass one that `facetric train` made")
    names = CHECKPOINTS if wanted == "best" else ("last",)
    for name in names:
        if (path := folder / f"{name}.safetensors").is_file():
            return path
    raise ValueError(
        f"{run} has no checkpoint yet: there is no {' or '.join(names)}.safetensors in {folder}; finish training with "
        f"`facetric resume {run}`"
    )


def _loaded_again(origin: tuple[Any, ...], fingerprint: str) -> Embedder:
    """An embedder from its pickle: the arguments of `load`, and the fingerprint that it had."""
    path, checkpoint, device = origin
    found = load(path, checkpoint=checkpoint, device=device)
    if found.fingerprint != fingerprint:
        raise OSError(f"{path or 'the packaged network'} is no longer the model that it was: load it again")
    return found
