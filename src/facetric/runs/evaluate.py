"""`evaluate_run`: from a run folder to embeddings.npz and evaluation.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from facetric.data import ImageDataset, load_dataset
from facetric.evaluation.embedding import embed, remove_blocks
from facetric.evaluation.embeddings import Embeddings
from facetric.evaluation.report import EvaluationReport
from facetric.evaluation.run_config import read_run_config
from facetric.evaluation.scores import evaluate
from facetric.metrics.retrieval import checked_ks
from facetric.progress import OnStep
from facetric.models import Embedder, load_embedder

SPLITS = ("test", "validation", "train")
PRODUCTS_KS, OTHER_KS = (1, 10, 100, 1000), (1, 2, 4, 8)


@dataclass(frozen=True, eq=False)
class RunEvaluation:
    """What was found, and where it was written."""

    report: EvaluationReport | None  # None for every process of torchrun but the first
    report_path: Path
    embeddings_path: Path


def evaluate_run(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    checkpoint: str = "best",
    views: int = 1,
    ks: Sequence[int] | None = None,
    n_restarts: int = 5,
    seed: int = 0,
    facility: bool = True,
    memory_gib: float = 1.0,
    batch_size: int = 64,
    device: str = "auto",
    embed_with: Callable[[Embedder, ImageDataset, int], Embeddings] | None = None,
    on_progress: OnStep | None = None,
) -> RunEvaluation:
    """Embed one split of the run's dataset with its best (else its last) checkpoint, score it, and write both files.

    The test split writes embeddings.npz and evaluation.json, another one embeddings-SPLIT.npz and evaluation-SPLIT.json.
    Neighbors are by cosine when the model normalizes its embeddings, else Euclidean. Under torchrun all processes embed.
    `embed_with`, called with the model, the images and their size, takes the place of `embed`: who evaluates many models with
    the same frozen part need not run it for each.
    """
    folder = Path(run)
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}: choose one of these")
    config = read_run_config(folder)
    weights = _checkpoint(folder, checkpoint)
    data = config["data"]
    dataset = _split(data, split)
    n_others = len(dataset) - 1
    usual = [k for k in (PRODUCTS_KS if data["name"] == "products" else OTHER_KS) if k <= n_others]
    ks = checked_ks(ks or usual or (1,), n_others)  # now, not hours later
    embedder = load_embedder(weights).to(_device(device))
    step = on_progress or (lambda name, done, total: None)
    rank = _join_processes()
    ending = "" if split == "test" else f"-{split}"
    blocks = folder / f"embedding{ending}"
    result = RunEvaluation(None, folder / f"evaluation{ending}.json", folder / f"embeddings{ending}.npz")
    size = int(data.get("size", 256))
    if embed_with is not None:
        embeddings = embed_with(embedder, dataset, size)
    else:
        embeddings = embed(
            embedder,
            dataset,
            views=views,
            size=size,
            batch_size=batch_size,
            folder=blocks,
            on_progress=lambda done, total: step("Embedding", done, total),
        )
    if rank > 0:
        _meet()
        return result
    source = {**embeddings.source, "dataset": data["name"], "split": split, "checkpoint": weights.name}
    embeddings = Embeddings(embeddings.vectors, embeddings.labels, embeddings.images, source)
    embeddings.save(result.embeddings_path)
    _meet()  # the others have read their blocks too
    remove_blocks(blocks)
    report = evaluate(
        embeddings.vectors,
        embeddings.labels,
        ks=ks,
        metric="cosine" if embedder.normalize else "euclidean",
        n_restarts=n_restarts,
        seed=seed,
        facility=facility,
        memory_gib=memory_gib,
        on_progress=on_progress,
    ).with_source(**source)
    report.save(result.report_path)
    return replace(result, report=report)


def _checkpoint(folder: Path, wanted: str) -> Path:
    names = {"best": ("best", "last"), "last": ("last",)}
    if wanted not in names:
        raise ValueError(f"checkpoint must be best or last; got {wanted!r}: choose one of these")
    for name in names[wanted]:
        path = folder / "checkpoints" / f"{name}.safetensors"
        if path.is_file():
            return path
    raise ValueError(
        f"{folder} has no checkpoint: there is no {' or '.join(names[wanted])}.safetensors in {folder / 'checkpoints'}; "
        f"train it first, or go on with `facetric resume {folder}`"
    )


def _split(data: dict[str, Any], split: str) -> ImageDataset:
    """The images of one split, as the run's training saw the splits."""
    dataset = load_dataset(data["name"], data.get("root"), **data.get("options", {}))
    if split != "test" and "validation" not in dataset.splits and "validation_fraction" in data:
        dataset = dataset.with_validation(data["validation_fraction"], seed=data.get("validation_seed", 0))
    chosen = dataset.select(split)
    pad = int(data.get("pad", 0))
    if isinstance(chosen.images, np.ndarray) and pad:  # pictures in memory are padded with black to train, so also here
        chosen = replace(chosen, images=np.pad(chosen.images, ((0, 0), (pad, pad), (pad, pad))))
    return chosen


def _device(name: str) -> str:
    """A device that is there; with several GPUs, that of this process."""
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = "cuda" if there["cuda"] else "cpu"
    if not there.get(name, False):
        offer = ", ".join(["auto", *(device for device, usable in there.items() if usable)])
        raise ValueError(f"device must be one of {offer} on this machine; got {name!r}: choose one of these")
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name


def _join_processes() -> int:
    """The rank of this process under torchrun, with the others met; 0 when it is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0
    import torch.distributed as processes

    if not processes.is_initialized():
        processes.init_process_group("gloo", timeout=timedelta(hours=24))
    return processes.get_rank()


def _meet() -> None:
    """Wait for the other processes, if there are any."""
    import torch.distributed as processes

    if processes.is_initialized():
        processes.barrier()
