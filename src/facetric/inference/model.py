"""`load`: a trained run, or the packaged network, as a model that takes photos and gives vectors."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.clustering import Agreement, AverageLinkage, Calibration, FacilityLocation, calibrate
from facetric.data.images import open_image, printable, upright_rgb
from facetric.data.loader import made_ahead
from facetric.groups import Decisions, PhotoGroups, cluster_folder
from facetric.index import PhotoIndex, open_index
from facetric.inference.packaged import packaged_calibration
from facetric.models import Embedder, build_embedder, load_embedder
from facetric.models.embedder import Precision
from facetric.models.storage import embedder_fingerprint
from facetric.photos.encoder import BATCH, PictureFormat, picture_pixels, picture_vectors
from facetric.photos.listing import list_photos
from facetric.progress import OnStep, Progress
from facetric.runs import Run, RunFolderError
from facetric.runs.evaluate import usable_device

PACKAGED = "tf_efficientnet_lite0"
CLUSTERING_STEP = 2  # steps of the calibration that "finer" and "coarser" take
_TAKES = "a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of these"

Photos: TypeAlias = "str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | Sequence[Photos]"


def load(
    run: str | os.PathLike[str] | None = None, *, checkpoint: str = "best", device: str = "auto", precision: Precision = "32"
) -> Model:
    """The model of a run folder (its best checkpoint, or the last where there is no best), ready to use.

    Without a run: EfficientNet-Lite0 as it comes with the install, trained on ImageNet only. `device` is auto, cpu, cuda or mps.
    `precision` is that of the backbone (`Embedder.for_inference`); vectors of another precision are those of another model.
    """
    if run is not None and not isinstance(run, str | os.PathLike):
        raise ValueError(f"load takes the path of a run folder, or nothing; got {type(run).__name__}: pass runs/photos, say")
    place = usable_device(device)
    if run is None:
        network = build_embedder(PACKAGED, weights="packaged").to(place)
        form = PictureFormat(max(256, network.input_spec.size))
        return Model(
            network.for_inference(precision),
            form,
            _of_precision(_backbone_fingerprint(network), precision),
            features=True,
            source=(None, checkpoint, device, precision),
        )
    opened = Run(Path(run).expanduser())
    data, weights = opened.config.data, opened.checkpoint(checkpoint)
    fingerprint = embedder_fingerprint(weights)
    embedder = load_embedder(weights).to(place).for_inference(precision)
    if embedder_fingerprint(weights) != fingerprint:
        raise RunFolderError(f"{weights} was replaced while it was read, the run is still training: load it again")
    drawings = data.name == "glyphs"  # drawn at their size, and padded; photos are stretched to data.size
    form = PictureFormat(int(data.options.get("size", 32)), data.pad) if drawings else PictureFormat(data.size)
    source = (str(opened.path.absolute()), checkpoint, device, precision)
    return Model(embedder, form, _of_precision(fingerprint, precision), source=source)


@dataclass(frozen=True, eq=False)
class Model:
    """Photos in, vectors out. Made by `load`; pickling it stores where it came from, not its weights.

    Vectors have length one, so that their dot products are cosine similarities; only a run with `model.normalize = false` gives
    vectors of any length. They are those of `facetric evaluate` for the same pictures.
    """

    embedder: Embedder
    form: PictureFormat
    fingerprint: str  # a hash of the network and its precision: vectors can be compared if theirs are equal
    features: bool = False  # the backbone's features instead of a trained head's embedding
    source: tuple[str | None, str, str, Precision] = field(default=(None, "best", "auto", "32"))  # the arguments of `load`

    def __repr__(self) -> str:
        what = f"the packaged {self.embedder.name}" if self.run is None else repr(self.run)
        return f"<Model of {what}: {self.dimensions} dimensions, {self.fingerprint[:12]}>"

    @property
    def run(self) -> str | None:
        """The run folder; None for the packaged network."""
        return self.source[0]

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self.embedder.n_features if self.features else self.embedder.dim

    @cached_property
    def calibration(self) -> Calibration | None:
        """How to cluster these vectors without a number of clusters: as the run's evaluation chose it on validation classes, or,
        where those are too few, on the evaluated test classes. That of the packaged network comes with the install.

        None for a run that is not evaluated at this precision or has fewer than four such classes, and for the packaged network
        at another precision than 32.
        """
        return self._calibrated[0]

    @property
    def calibrated_on(self) -> str:
        """The labeled classes that the calibration was chosen on, in words."""
        return self._calibrated[1]

    @cached_property
    def _calibrated(self) -> tuple[Calibration | None, str]:
        if self.run is None:
            return packaged_calibration(self.fingerprint)
        opened = Run(self.run)
        with suppress(ValueError):  # not evaluated, or too few validation classes
            kept, source = opened.calibration()
            if self._made(source):
                return kept, f"the validation classes of {opened.path.name}"
        for split in ("test", "validation"):
            try:
                found = opened.embeddings(split)
                if self._made(found.source):
                    what = f"{len(np.unique(found.labels)):,} {split} classes of {opened.path.name}"
                    return calibrate(found.vectors, found.labels), what
            except ValueError:  # not evaluated, stale, or too few classes
                continue
        return None, ""

    def _made(self, source: Mapping[str, Any]) -> bool:
        """Whether vectors with this record are those of this model, one crop each."""
        made_by = _of_precision(source.get("model", ""), source.get("precision", "32"))
        return made_by == self.fingerprint and source.get("n_views") == 1

    def cluster(
        self,
        photos: str | os.PathLike[str],
        *,
        output: str | os.PathLike[str] | None = None,
        n_clusters: int | None = None,
        finer: int = 0,
        coarser: int = 0,
        decisions: Decisions | None = None,
        n_processes: int = 1,
        on_step: OnStep | None = None,
    ) -> PhotoGroups:
        """Group all photos in a folder: as many groups as the calibration finds, or `n_clusters`.

        `finer` and `coarser` move the calibration's threshold by steps. With an `output` folder, clusters.csv and the page
        clusters.html are written there, and vectors are kept for the next time. `decisions` are corrections from that page.
        """
        clusterer, expected, made_by = self._clusterer(n_clusters, coarser - finer)
        return cluster_folder(
            photos,
            self,
            clusterer,
            output,
            decisions=decisions,
            expected=expected,
            made_by=made_by,
            n_processes=n_processes,
            on_step=on_step,
        )

    def _clusterer(self, n_clusters: int | None, n_steps: int) -> tuple[AverageLinkage | FacilityLocation, Agreement | None, str]:
        name = f"the packaged {self.embedder.name}" if self.run is None else Path(self.run).name
        if n_clusters is not None:
            if n_steps:
                raise ValueError(
                    "a number of groups is neither fine nor coarse: pass one of --clusters, --finer and --coarser (n_clusters, "
                    "finer, coarser)"
                )
            return FacilityLocation(n_clusters), None, f"model: {name}; {n_clusters} groups as asked"
        if self.calibration is None:
            raise ValueError(f"{name} {self._how_to_calibrate()}, or pass a number of groups (--clusters 8)")
        calibration = self.calibration.coarser(n_steps * CLUSTERING_STEP)
        return calibration.clusterer(), calibration.expected, f"model: {name}, calibrated on {self.calibrated_on}"

    def _how_to_calibrate(self) -> str:
        precision = self.source[3]
        if self.run is None:
            return f"is calibrated for precision 32 only: load it without precision={precision!r}"
        command = f"facetric evaluate {printable(self.run)}" + ("" if precision == "32" else f" --precision {precision}")
        return f"has no evaluated classes to learn from how near photos of a group are: run `{command}`"

    def embed(self, photos: Photos, *, n_threads: int = 2, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """The vectors (n, dimensions) of photos, in their order: one row per picture, a folder giving all photos below it.

        Takes a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of
        these. Pictures are turned upright by their EXIF orientation, as in training.
        """
        pictures = list(_pictures(photos))
        found = []
        groups = [pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH)]
        for pixels in made_ahead((partial(self._opened, group) for group in groups), n_threads):
            found.append(picture_vectors(self.embedder, pixels, features=self.features))
            if on_progress is not None:
                on_progress(sum(map(len, found)), len(pictures))
        return np.concatenate(found) if found else np.empty((0, self.dimensions), dtype=np.float32)

    def index(self, path: str | os.PathLike[str]) -> PhotoIndex:
        """The index of photos in this folder, or at milvus://host:19530/collection, to add to and to search.

        It is made with the first photo.

        A photo is unknown to it when nothing is as similar as members of a cluster are by the `calibration`.
        """
        return open_index(path, self, run=self.run, near_enough=self._near_enough())

    def _near_enough(self) -> float | None:
        """The cosine similarity at the calibrated distance: ‖x − y‖² = 2 − 2 cos for vectors of length one."""
        calibration = self.calibration
        has_unit_vectors = self.features or self.embedder.normalize
        if calibration is None or calibration.method != "average_linkage" or not has_unit_vectors:
            return None
        return 1 - calibration.threshold**2 / 2

    @property
    def at_least(self) -> int:
        """JPEG files are decoded at a fraction of their size that leaves this many pixels on each side."""
        return 2 * self.form.size

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """An upright picture as the network's input before cropping."""
        return picture_pixels(self.embedder, image, self.form)

    def vectors(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """The vectors of what `pixels` gave, to the last bit the same whatever a picture is embedded with."""
        return picture_vectors(self.embedder, pixels, features=self.features, padded=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.source, self.fingerprint)

    def _opened(self, pictures: Sequence[Path | Image.Image]) -> list[NDArray[np.uint8]]:
        return [
            self.pixels(upright_rgb(x) if isinstance(x, Image.Image) else open_image(x, at_least=self.at_least)) for x in pictures
        ]


def _restored(source: tuple[str | None, str, str, Precision], fingerprint: str) -> Model:
    run, checkpoint, device, precision = source
    model = load(run, checkpoint=checkpoint, device=device, precision=precision)
    if model.fingerprint != fingerprint:
        raise RunFolderError(f"{run or 'the packaged network'} is no longer the model that it was: load it again")
    return model


def _pictures(photos: Any) -> Iterator[Path | Image.Image]:
    """Every picture in turn; folders and lists are opened, files and images are not."""
    if isinstance(photos, str | os.PathLike):
        path = Path(photos).expanduser()
        if not path.is_dir():
            yield path
            return
        listed = list_photos(path)
        if not listed.photos:
            raise ValueError(f"there are no photos in {printable(path)}: pass a folder that holds some, nested or not")
        yield from (listed.root / photo for photo in listed.photos)
    elif isinstance(photos, Image.Image):
        yield photos
    elif isinstance(photos, np.ndarray):
        yield from (_picture(array) for array in (photos if photos.ndim == 4 else photos[None]))
    elif isinstance(photos, list | tuple):
        for photo in photos:
            yield from _pictures(photo)
    else:
        raise ValueError(f"embed takes {_TAKES}; got {type(photos).__name__}: pass one of these")


def _picture(array: NDArray[Any]) -> Image.Image:
    is_gray, is_color = array.ndim == 2, array.ndim == 3 and array.shape[2] == 3
    if array.dtype != np.uint8 or not (is_gray or is_color) or 0 in array.shape:
        raise ValueError(
            f"a picture is a uint8 array of shape (height, width) or (height, width, 3), values 0 to 255; got {array.dtype} of "
            f"shape {array.shape}: convert it"
        )
    return Image.fromarray(array)


def _of_precision(fingerprint: str, precision: Precision) -> str:
    """That of the network itself in float32."""
    return fingerprint if precision == "32" else hashlib.sha256(f"{fingerprint} {precision}".encode()).hexdigest()


def _backbone_fingerprint(embedder: Embedder) -> str:
    digest = hashlib.sha256(f"{embedder.name} features".encode())
    for name, tensor in sorted(embedder.backbone.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
