"""`Embedder`: images in, vectors out. `load` makes it, or `Embedder(network)` of one that you trained."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.clustering import AverageLinkage, Calibration, FacilityLocation
from facetric.embedder.backbones import build_network
from facetric.embedder.checkpoint import (
    calibration_file,
    load_network,
    network_fingerprint,
    read_calibration,
    save_network,
    write_calibration,
)
from facetric.embedder.encode import encode, usable_device
from facetric.embedder.network import Network
from facetric.embedder.onnx_engine import OnnxDescription, OnnxEngine, read_engine
from facetric.embedder.onnx_export import MANY, check_place, kept_engine, sample_images, write_export
from facetric.images import Files, as_source
from facetric.progress import steps_shown
from facetric.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKPOINTS = ("best", "last")
CLUSTERING_STEP = 2  # steps of the calibration that "finer" and "coarser" take
_PACKAGED = "tf_efficientnet_lite0"

ImageLike: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | Sequence[ImageLike]"


class Embedder:
    """Images in, vectors out.

    Vectors have length one, so that their dot products are cosine similarities; only a network with `normalize=False` gives
    vectors of any length. They are those of `facetric evaluate` for the same images. Pickling what `load` gave stores where it
    came from, not its weights. The network is put in eval mode; one that is trained further needs another Embedder.

    Attributes:
        network: what is run, a `Network` or an exported one.
        fingerprint: a hash of the network: vectors can be compared if theirs are equal.
        calibration: how to cluster these vectors without a number of clusters, as the run's evaluation chose it on validation
            classes or, where those are too few, on the test classes; that of the packaged network comes with the install. None
            where it was not evaluated or has fewer than four such classes.
        calibrated_on: these classes, in words.
        name: what it was loaded from, in words.
        run: the run folder or file that it was loaded from; None for the packaged network and for one in memory.
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
        calibration: Calibration | None = None,
        calibrated_on: str = "",
        file: Path | None = None,
        origin: tuple[str | None, str, str] | None = None,
    ) -> None:
        if not isinstance(network, Network):  # an exported file knows these
            about = network.description
            fingerprint, calibrated_on = about.fingerprint, about.calibrated_on
            calibration = None if about.calibration is None else Calibration.from_dict(about.calibration)
        self.network = network
        self.fingerprint = network_fingerprint(network) if fingerprint is None else fingerprint  # type: ignore[arg-type]
        self.calibration, self.calibrated_on = calibration, calibrated_on
        self.dim, self.preprocessing = network.dim, network.preprocessing
        self.file, self.device = file, network.device
        self.origin = origin  # the arguments of `load`
        self.run = None if origin is None else origin[0]
        self.name = Path(self.run).name if self.run else f"the packaged {network.name}" if origin else network.name
        self._engine = network.for_inference() if isinstance(network, Network) else network
        self._tried: set[bool] = set()  # to use an export that is kept (False), and to make one (True)

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
        if isinstance(self._engine, Network) and self.device.type == "cpu" and is_many not in self._tried:
            self._tried |= {is_many, False}
            self._engine = kept_engine(self._engine, self.fingerprint, export=is_many) or self._engine

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network with its preprocessing to a .safetensors file, which `load` takes; the calibration lies beside it."""
        path = Path(path).expanduser()
        if not isinstance(self.network, Network):
            raise ValueError(f"{printable(self.run)} is exported, it has no weights to save: copy it, or load the run folder")
        if path.suffix != ".safetensors":
            raise ValueError(
                f"a network is saved as .safetensors; got {printable(path)}: name it {printable(path.stem)}.safetensors"
            )
        save_network(self.network, path)
        if self.calibration is not None:
            write_calibration(path, self.fingerprint, self.calibration, self.calibrated_on)

    def save_calibration(self, calibration: Calibration | None, classes: str) -> None:
        """Keep beside the checkpoint how to cluster its vectors, and the classes that it was chosen on, in words; `load` finds it
        from now on. None where there were too few of them."""
        assert self.file is not None
        self.calibration, self.calibrated_on = calibration, classes
        write_calibration(self.file, self.fingerprint, calibration, classes)

    def export(self, path: str | os.PathLike[str], *, check: ImageLike | None = None, overwrite: bool = False) -> OnnxDescription:
        """Write the model to an ONNX file: preprocessing, network and normalization, for any number of images.

        Its input are uint8 images (n, size, size, channels), upright and as `preprocessing.pixels` makes them. Fingerprint,
        calibration and preprocessing are in its metadata. Before the file is put in place it is run by onnxruntime and compared
        with torch on up to 64 images of `check`, else on photos that come with the install.
        """
        if not isinstance(self.network, Network):
            raise ValueError(f"{printable(self.run)} is exported already: copy it, or pass the run folder")
        place = Path(path).expanduser()
        check_place(place, overwrite=overwrite)
        return write_export(
            self.network,
            place,
            self.fingerprint,
            Files(sample_images()) if check is None else as_source(check),
            calibration=None if self.calibration is None else self.calibration.as_dict(),
            calibrated_on=self.calibrated_on,
        )

    @property
    def near_enough(self) -> float | None:
        """The cosine similarity at the calibrated distance: ‖x − y‖² = 2 − 2 cos for vectors of length one."""
        if self.calibration is None or not self.network.normalize:
            return None
        return 1 - self.calibration.threshold**2 / 2

    def clusterer(
        self, n_clusters: int | None, n_steps: int
    ) -> tuple[AverageLinkage | FacilityLocation, Calibration | None, str]:
        """What clusters these vectors, `n_steps` coarser than calibrated, its calibration, and who made it in words."""
        if n_clusters is not None:
            if n_steps:
                raise ValueError("a number of groups is neither fine nor coarse: pass one of n_clusters=, finer= and coarser=")
            return FacilityLocation(n_clusters), None, f"model: {self.name}; {n_clusters} group{'s' * (n_clusters != 1)} as asked"
        if self.calibration is None:
            run = printable(self.run or "RUN")
            why = f"has no evaluated classes to learn from how near photos of a group are: run `facetric evaluate {run}`"
            if self.calibrated_on:  # evaluated, without a result
                why = "was evaluated on fewer than four classes, too few to learn how near photos of a group are: train with more"
            raise ValueError(f"{self.name} {why}, or pass a number of groups (n_clusters=8)")
        calibration = self.calibration.coarser(n_steps * CLUSTERING_STEP)
        return calibration.clusterer(), calibration, f"model: {self.name}, calibrated on {self.calibrated_on}"

    def __reduce__(self) -> Any:
        if self.origin is not None:
            return _loaded_again, (self.origin, self.fingerprint)
        known: dict[str, Any] = {"calibration": self.calibration, "calibrated_on": self.calibrated_on}
        return partial(Embedder, self.network, fingerprint=self.fingerprint, **known), ()


def load(path: str | os.PathLike[str] | None = None, *, checkpoint: str = "best", device: str = "auto") -> Embedder:
    """The embedder of a run folder (its best checkpoint, or the last where there is no best), of a checkpoint such as
    birds.safetensors, or of a file that `facetric export` wrote.

    Without a path: EfficientNet-Lite0 as it comes with the install, trained on ImageNet only, on the central square of an image. `device` is auto, cpu, cuda or mps.
    """
    if path is not None and not isinstance(path, str | os.PathLike):
        raise ValueError(f"load takes the path of a run folder, or nothing; got {type(path).__name__}: pass runs/photos, say")
    where = None if path is None else Path(path).expanduser()
    origin = (None if where is None else str(where.absolute()), checkpoint, device)
    if where is not None and where.suffix == ".onnx" and not where.is_dir():
        if device not in ("auto", "cpu"):
            raise ValueError(
                f"an exported file is run on the CPU; got device {device!r}: leave device= out, or pass the run folder"
            )
        return Embedder(read_engine(where), file=where, origin=origin)
    place, weights = usable_device(device), None
    if where is None:
        network = build_network(_PACKAGED, dim=None, weights="packaged", fit="crop").eval()
        kept = Path(__file__).with_name("packaged_calibration.json")
    else:
        weights = _checkpoint_file(where, checkpoint) if where.is_dir() or not where.suffix else where
        network, kept = load_network(weights), calibration_file(weights)
    fingerprint = network_fingerprint(weights or network)
    found = Embedder(network.to(place), fingerprint=fingerprint, file=weights, origin=origin)
    found.calibration, found.calibrated_on = read_calibration(kept, fingerprint)
    return found


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
