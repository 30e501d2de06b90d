"""`Run.evaluate`, from top to bottom: the images as they are now, their vectors, the scores, the scores without training.

Without training there are the pretrained features, computed once for an image and shared by all runs on it, and a closed-form
head on them. A network that starts from random weights has no such features; it is scored as it starts, and so are the pixels,
with and without a closed-form head.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from facetric.clustering import PairModel, calibrate
from facetric.embedder import WHOLE, Embedder, Network, Vectors, build_network, closed_form_vectors, load
from facetric.evaluation import EvaluationReport, evaluate
from facetric.images import ImageDataset
from facetric.metrics import Metric, checked_ks
from facetric.progress import Progress
from facetric.runs.states import DivergedError
from facetric.text import class_fingerprint, printable

if TYPE_CHECKING:
    from facetric.runs.run import Run

FEWEST_CLASSES = 4  # for validation, that teach a pair model
PRODUCTS_KS, OTHER_KS = (1, 10, 100, 1000), (1, 2, 4, 8)
FEATURES, CLOSED_FORM = "pretrained features", "closed-form head"
PIXELS, UNTRAINED, CLOSED_FORM_ON_PIXELS = "raw pixels", "untrained network", "closed-form head on pixels"
Baseline = tuple[str, NDArray[np.float32], dict[str, Any]]  # name, vectors (n, d) to compare by cosine, source
_log = logging.getLogger("facetric")


def evaluate_run(
    run: Run,
    *,
    split: str = "test",
    checkpoint: str = "best",
    ks: Sequence[int] | None = None,
    n_restarts: int = 5,
    seed: int = 0,
    facility: bool = True,
    baselines: bool = True,
    memory_gib: float = 1.0,
    batch_size: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> EvaluationReport:
    """Embed one split of the run's data with its best (else its last) checkpoint, score it, and write both files.

    The split is the manifest's, as training saw it; images that were added, removed or changed since are counted and named in
    a warning, and added ones are left out. The test split writes embeddings.npz and evaluation.json, another one
    embeddings-SPLIT.npz and evaluation-SPLIT.json. Neighbors are by cosine when the network normalizes its embeddings, else
    Euclidean.

    Images are also clustered without the number of classes, by a pair model that was fitted to the validation classes if there
    are four or more; best.pair_model.json keeps it. `facility=False` leaves that and the clustering from medoids out.

    `baselines`: also score what there was before training, in the report's `baselines`.
    """
    vectors_file, scores_file = run.embeddings_file(split), run.evaluation_file(split)
    if not facility and n_restarts == 0:
        raise ValueError(
            "there are no clusters to score with facility=False and n_restarts=0: ask for at least one of them (leave out "
            "--no-facility, or pass --restarts 5)"
        )
    if not memory_gib > 0:
        raise ValueError(f"memory_gib must be above 0; got {memory_gib}: 1 is plenty for a million images (--memory 1)")
    progress = progress or (lambda *_: None)
    embedder = load(run.path, checkpoint=checkpoint, device=device)
    network, weights = embedder.network, embedder.file
    assert isinstance(network, Network)
    assert weights is not None
    dataset, changes = run.images(split)
    n_others = len(dataset.labels) - 1
    usual = [k for k in (PRODUCTS_KS if run.config.data.name == "products" else OTHER_KS) if k <= n_others]
    ks = checked_ks(ks, n_others) if ks else usual or (1,)  # fail now, not hours later
    for line in changes.lines():
        _log.warning("%s", line)
    with run.locked("evaluated"):
        source = {
            "views": "center crop",
            "crop": network.preprocessing.crop,
            "dataset": run.config.data.name,
            "split": split,
            "classes": class_fingerprint(dataset.class_names, dataset.labels),
            "checkpoint": weights.name,
            "model": embedder.fingerprint,
            "manifest": run.manifest.fingerprint,
        }
        embeddings = Vectors.of(
            network,
            dataset.source,
            dataset.labels,
            model=embedder.fingerprint,
            source=source,
            batch_size=batch_size,
            progress=progress,
        )
        with run.writing():
            embeddings.save(vectors_file)
        _refuse_diverged(embeddings.vectors, weights, normalized=network.normalize)
        pair_model = None
        if split == "test":
            pair_model = _pair_model(run, embedder, embeddings, progress)
        scored = partial(
            evaluate, labels=dataset.labels, ks=ks, n_restarts=n_restarts, seed=seed, facility=facility, memory_gib=memory_gib
        )
        metric: Metric = "cosine" if network.normalize else "euclidean"
        report = scored(embeddings.vectors, metric=metric, pair_model=pair_model if facility else None, progress=progress)
        without_training = {}
        for name, known, about in baselines_of(run, dataset, device=embedder.device, progress=progress) if baselines else ():
            progress(f"Scores of {name}", 0, 1)
            without_training[name] = replace(scored(known), source=about)
            progress(f"Scores of {name}", 1, 1)
        report = replace(report, source={**source, "embeddings": embeddings.fingerprint}, baselines=without_training)
        with run.writing():
            report.save(scores_file)
    _log.info("written: %s, %s", printable(scores_file), printable(vectors_file))
    return report


def _refuse_diverged(vectors: NDArray[np.float32], weights: Path, *, normalized: bool) -> None:
    is_bad = ~np.isfinite(vectors).all(axis=1)
    if normalized:
        is_bad |= ~vectors.any(axis=1)
    if is_bad.any():
        raise DivergedError(
            f"with {weights} the embeddings of {is_bad.sum():,} of {len(vectors):,} images are zero or not finite: train again "
            "with lower rates (--set optimizer.head_lr=… --set optimizer.backbone_lr=…)"
        )


def _pair_model(run: Run, embedder: Embedder, test: Vectors, progress: Progress) -> PairModel | None:
    """Which of these images are probably of one class, as the validation classes teach; kept beside the checkpoint.

    Training classes are no measure of how far apart new classes lie. Without validation classes, those that are tested are judged
    by the model that comes with the install. They teach the one that is kept, for photos of other classes.
    """
    classes = f"the validation classes of {run.path.name}"
    if embedder.fitted_to == classes:
        return embedder.pair_model
    found = kept = None
    if run.manifest.count("validation")[1] >= FEWEST_CLASSES:
        try:
            dataset, _ = run.images("validation")
            assert isinstance(embedder.network, Network)
            known = Vectors.of(embedder.network, dataset.source, step="Embedding validation classes", progress=progress)
            found = kept = calibrate(known.vectors, dataset.labels)
        except (OSError, ValueError) as error:
            _log.warning("validation images cannot be used, and teach nothing about unknown classes: %s", error)
    if kept is None:
        classes = f"{len(np.unique(test.labels)):,} test classes of {run.path.name}"
        with suppress(ValueError):  # too few of them
            kept = calibrate(test.vectors, test.labels)
    if kept is not None:
        with run.writing():
            embedder.save_pair_model(kept, classes)
    return found or PairModel.packaged()


def baselines_of(run: Run, dataset: ImageDataset, *, device: Any, progress: Progress | None) -> Iterator[Baseline]:
    """What a run is compared with, on the images of `dataset` (one center crop each).

    What cannot be computed any more (weights or training images are gone) is left out with a warning.
    """
    try:
        network = _built(run, dim=None).to(device)
        if network.freeze_batchnorm:
            yield from _pretrained(run, network, dataset, progress)
        else:
            yield from _untrained(run, start_network(run).to(device), dataset, progress)
    except (OSError, ValueError) as error:
        _log.warning("not all that there was before training can be scored: %s", error)


def start_network(run: Run) -> Network:
    """The run's network before its first step, frozen as a whole. A head that is fitted to features is left at random."""
    model = run.config.model
    kind = "default" if model.head_init == "default" else "orthogonal"
    return _built(run, dim=model.dim).with_head(kind=kind, seed=run.config.run.seed)


def _built(run: Run, *, dim: int | None) -> Network:
    """Without `dim` its vectors are the features."""
    model, data = run.config.model, run.config.data
    return build_network(
        model.backbone,
        dim=dim,
        weights=model.weights,
        image_size=model.image_size,
        size=data.size,
        pad=data.pad,
        fit=data.fit,
        normalize=dim is not None,
        pooling=model.pooling,
        freeze_through=WHOLE,
        seed=run.config.run.seed,
    )


def _pretrained(run: Run, network: Network, dataset: ImageDataset, progress: Progress | None) -> Iterator[Baseline]:
    source = {"backbone": network.name, "views": "center crop", "pooling": network.pooling}
    features = Vectors.of(network, dataset.source, step="Pretrained features", progress=progress).vectors
    yield FEATURES, features, source
    training, _ = run.images("train")
    known = Vectors.of(network, training.source, step="Pretrained features of training images", progress=progress).vectors
    vectors, shrinkage = closed_form_vectors(known, training.labels, features, run.config.model.dim)
    yield CLOSED_FORM, vectors, {**source, "shrinkage": shrinkage}


def _untrained(run: Run, network: Network, dataset: ImageDataset, progress: Progress | None) -> Iterator[Baseline]:
    in_memory = isinstance(dataset.images, np.ndarray)  # images of one size
    if in_memory:
        yield PIXELS, _pixels(dataset, network), {}
    found = Vectors.of(network, dataset.source, step="Untrained network", progress=progress)
    yield UNTRAINED, found.vectors, {"backbone": network.name, "views": "center crop"}
    if in_memory:
        training, _ = run.images("train")
        known, pixels = (_pixels(part, network) for part in (training, dataset))
        vectors, shrinkage = closed_form_vectors(known, training.labels, pixels, run.config.model.dim)
        yield CLOSED_FORM_ON_PIXELS, vectors, {"shrinkage": shrinkage}


def _pixels(dataset: ImageDataset, network: Network) -> NDArray[np.float32]:
    """Of images in memory, with the black border that the network sees."""
    pad = (network.preprocessing.pad, network.preprocessing.pad)
    pixels = np.pad(np.asarray(dataset.images, dtype=np.float32), ((0, 0), pad, pad))
    return pixels.reshape(len(pixels), -1)
