"""`Embedder`: a network that takes photos and gives vectors, groups, an index, a file; `load` makes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from facetric.clustering import AverageLinkage, Calibration, FacilityLocation
from facetric.embedder import Network
from facetric.embedder.calibrated import is_evaluated, packaged_calibration, run_calibration
from facetric.embedder.encoder import BATCH, PictureFormat, picture_pixels, picture_vectors
from facetric.embedder.pictures import Photos, pictures_of
from facetric.embedder.saved import saved_network
from facetric.images.decoding import open_image, upright_rgb
from facetric.images.sources import made_ahead
from facetric.photos import Collection, Decisions, PhotoGroups, cluster_folder, open_collection
from facetric.progress import OnStep, Progress
from facetric.runs import Run, RunFolderError
from facetric.text import printable

if TYPE_CHECKING:
    from facetric.embedder import Export, OnnxNetwork
    from facetric.embedder.loading import Engine
    from facetric.embedder.onnx_graph import InputKind

CLUSTERING_STEP = 2  # steps of the calibration that "finer" and "coarser" take


@dataclass(frozen=True, eq=False)
class Embedder:
    """Photos in, vectors out. Made by `load`; pickling it stores where it came from, not its weights.

    Vectors have length one, so that their dot products are cosine similarities; only a run with `model.normalize = false` gives
    vectors of any length. They are those of `facetric evaluate` for the same pictures.
    """

    network: Network | OnnxNetwork
    form: PictureFormat
    fingerprint: str  # a hash of the network: vectors can be compared if theirs are equal
    features: bool = False  # the backbone's features instead of a trained head's embedding
    source: tuple[str | None, str, str, Engine | None] = (None, "best", "auto", None)  # the arguments of `load`

    def __repr__(self) -> str:
        what = f"the packaged {self.network.name}" if self.run is None else repr(self.run)
        return f"<Embedder of {what}: {self.dim} dimensions, {self.fingerprint[:12]}>"

    @property
    def run(self) -> str | None:
        """The run folder, or the exported file; None for the packaged network."""
        return self.source[0]

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.network.n_features if self.features and isinstance(self.network, Network) else self.network.dim

    @cached_property
    def calibration(self) -> Calibration | None:
        """How to cluster these vectors without a number of clusters: as the run's evaluation chose it on validation classes, or,
        where those are too few, on the evaluated test classes. That of the packaged network comes with the install.

        None for a run that is not evaluated or has fewer than four such classes.
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
        if self.is_exported and not isinstance(self.network, Network):
            kept, on = self.network.description.calibration, self.network.description.calibrated_on
            return (None if kept is None else Calibration.from_dict(kept)), on
        return run_calibration(Run(self.run), self.fingerprint)

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
        clusterer, calibration, made_by = self.clusterer(n_clusters, coarser - finer)
        return cluster_folder(
            photos,
            self,
            clusterer,
            output,
            decisions=decisions,
            calibration=calibration,
            made_by=made_by,
            n_processes=n_processes,
            on_step=on_step,
        )

    def cluster_index(
        self,
        path: str | os.PathLike[str],
        *,
        n_clusters: int | None = None,
        finer: int = 0,
        coarser: int = 0,
        decisions: Decisions | None = None,
    ) -> PhotoGroups:
        """Group all photos of an index, as `cluster` groups those of a folder; they are not read or embedded again."""
        index = self.index(path)
        try:
            return index.cluster(n_clusters=n_clusters, finer=finer, coarser=coarser, decisions=decisions)
        finally:
            index.close()

    def clusterer(
        self, n_clusters: int | None, n_steps: int
    ) -> tuple[AverageLinkage | FacilityLocation, Calibration | None, str]:
        """What clusters these vectors, `n_steps` coarser than calibrated, its calibration, and who made it in words."""
        name = f"the packaged {self.network.name}" if self.run is None else Path(self.run).name
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
        return calibration.clusterer(), calibration, f"model: {name}, calibrated on {self.calibrated_on}"

    def _how_to_calibrate(self) -> str:
        assert self.run is not None  # the packaged network is calibrated
        if not self.is_exported and is_evaluated(Run(self.run), self.fingerprint):
            return "was evaluated on fewer than four classes, too few to learn how near photos of a group are: train with more"
        return (
            "has no evaluated classes to learn from how near photos of a group are: run `facetric evaluate "
            f"{printable(self.run)}`"
        )

    def encode(self, photos: Photos, *, n_threads: int = 2, on_progress: Progress | None = None) -> NDArray[np.float32]:
        """The vectors (n, dim) of photos, in their order: one row per picture, a folder giving all photos below it.

        Takes a path of a photo or a folder, a PIL image, a uint8 array (height, width) or (height, width, 3), or a list of
        these. Pictures are turned upright by their EXIF orientation, as in training.
        """
        pictures = list(pictures_of(photos))
        found = []
        groups = [pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH)]
        for pixels in made_ahead((partial(self._opened, group) for group in groups), n_threads):
            found.append(self.vectors(pixels, padded=False))
            if on_progress is not None:
                on_progress(sum(map(len, found)), len(pictures))
        return np.concatenate(found) if found else np.empty((0, self.dim), dtype=np.float32)

    def index(self, path: str | os.PathLike[str]) -> Collection:
        """The index of photos in this folder, or at milvus://host:19530/collection, to add to and to search.

        It is made with the first photo.

        A photo is unknown to it when nothing is as similar as members of a cluster are by the `calibration`.
        """
        return open_collection(path, self)

    @property
    def near_enough(self) -> float | None:
        """The cosine similarity at the calibrated distance: ‖x − y‖² = 2 − 2 cos for vectors of length one."""
        calibration = self.calibration
        has_unit_vectors = self.features or self.network.normalize
        if calibration is None or not has_unit_vectors:
            return None
        return 1 - calibration.threshold**2 / 2

    @property
    def at_least(self) -> int:
        """JPEG files are decoded at a fraction of their size that leaves this many pixels on each side."""
        return 2 * self.form.size

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """An upright picture as the network's input before cropping."""
        return picture_pixels(self.network, image, self.form)

    def vectors(self, pixels: Sequence[NDArray[np.uint8]], *, padded: bool = True) -> NDArray[np.float32]:
        """The vectors of what `pixels` gave, to the last bit the same whatever a picture is embedded with.

        Without `padded`, the last bits depend on how many there are, and one picture takes the time of one.
        """
        if isinstance(self.network, Network):
            return picture_vectors(self.network, pixels, features=self.features, padded=padded)
        return self.network.vectors(pixels)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        check: Photos | None = None,
        input: InputKind = "uint8",
        overwrite: bool = False,
    ) -> Export:
        """Write the model to an ONNX file: preprocessing, network and normalization, for any number of pictures.

        Its input are uint8 pictures (n, size, size, channels), upright and stretched to the run's size; with input "float32",
        normalized crops (n, channels, crop, crop). Fingerprint, calibration and preprocessing are in its metadata. Before the
        file is put in place it is run by onnxruntime and compared with torch: on photos of `check`, else on images of the run.
        """
        from facetric.embedder.exporting import export_model

        if self.is_exported:
            raise ValueError(f"{printable(self.run)} is exported already: copy it, or pass the run folder")
        again = saved_network(None if self.run is None else Path(self.run), self.source[1])
        if again.fingerprint != self.fingerprint:
            raise RunFolderError(f"{self.run} is no longer the model that it was: load it again")
        photos = None if check is None else list(pictures_of(check))
        return export_model(self, again, Path(path).expanduser(), photos, kind=input, overwrite=overwrite)

    @property
    def is_exported(self) -> bool:
        """Whether it comes from a file that `facetric export` wrote."""
        return self.run is not None and self.run.endswith(".onnx") and not Path(self.run).is_dir()

    def __reduce__(self) -> tuple[Any, ...]:
        from facetric.embedder.loading import restored

        return restored, (self.source, self.fingerprint)

    def _opened(self, pictures: Sequence[Path | Image.Image]) -> list[NDArray[np.uint8]]:
        return [
            self.pixels(upright_rgb(x) if isinstance(x, Image.Image) else open_image(x, at_least=self.at_least)) for x in pictures
        ]
