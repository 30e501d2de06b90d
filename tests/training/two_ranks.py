"""What one of two processes does in the tests of many processes."""

import json
import os
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

LOSS_NAMES = ("facility_location", "triplet_semihard", "lifted_structure", "npairs")


def global_batch():
    """24 characters of 6 classes."""
    from facetric.images.readers import load_dataset

    dataset = load_dataset("glyphs", min_images=17)
    chosen = [image for label in range(6) for image in np.flatnonzero(dataset.labels == label)[:4]]
    order = np.random.default_rng(0).permutation(chosen)
    return torch.from_numpy(dataset.images[order] / 127.5 - 1.0)[:, None], torch.from_numpy(dataset.labels[order])


def gradients_of_one_step(name, fabric, processes, images, labels):
    """The gradient of the loss of the global batch, by parameter, from this process's share of it; and how often it solved."""
    from facetric.embedder import build_network
    from facetric.runs.config import LossTable
    from facetric.training.processes import share_batch_norm
    from facetric.training.session import TrainedPart
    from facetric.training.step import build_loss

    config = LossTable.model_validate({"name": name, **({"margin_weight": 4.0} if name == "facility_location" else {})})
    loss = build_loss(config, seed=0, dim=8, n_classes=4, processes=processes)
    n_solved = 0
    if name == "facility_location":
        infer = loss._infer

        def counted(problem):
            nonlocal n_solved
            n_solved += 1
            return infer(problem)

        loss._infer = counted
    embedder = build_network("glyphnet", weights="none", dim=8, normalize=bool(config.normalize))
    embedder = embedder.with_head(kind="orthogonal")
    # The statistics of drawings, mostly one flat background, lose float32's digits: there they are frozen, as after pretraining.
    embedder.freeze_batchnorm = torch.get_default_dtype() == torch.float32
    embedder.train()
    if processes.n > 1 and not embedder.freeze_batchnorm:
        assert share_batch_norm(embedder) == []
    images = images.to(torch.get_default_dtype())
    share = len(images) // processes.n
    mine = slice(processes.rank * share, (processes.rank + 1) * share)
    network = fabric.setup_module(TrainedPart(embedder, from_activations=False))
    value = loss(processes.gather_rows(network(images[mine])), processes.gather_rows(labels[mine]))
    fabric.backward(value)
    gradients = {key: parameter.grad.contiguous() for key, parameter in embedder.named_parameters()}
    buffers = {key: buffer.contiguous() for key, buffer in embedder.named_buffers()}
    return {**gradients, **buffers, "loss": value.detach().reshape(1)}, n_solved


def gradients(folder, dtype):
    from facetric.runs.config import RunTable
    from facetric.training.processes import Processes
    from facetric.training.session import start_fabric

    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, dtype))
    fabric = start_fabric(RunTable(device="cpu"))
    processes = Processes(fabric.device)
    solved = {}
    images, labels = global_batch()
    for name in LOSS_NAMES:
        tensors, solved[name] = gradients_of_one_step(name, fabric, processes, images, labels)
        save_file(tensors, Path(folder) / f"{name}-{processes.rank}.safetensors")
    (Path(folder) / f"solved-{processes.rank}.json").write_text(json.dumps(solved))


def train_with_a_fault(place, config):
    """Train; in the second process the third batch, or the third forward pass, goes wrong."""
    from facetric.cli.main import app
    from facetric.training import session

    if os.environ["RANK"] == "1" and place == "feed":

        class BrokenFeed(session.Feed):
            def __iter__(self):
                for number, batch in enumerate(super().__iter__()):
                    if number == 2:
                        raise OSError("the disk of this process broke")
                    yield batch

        session.Feed = BrokenFeed
    if os.environ["RANK"] == "1" and place == "forward":

        class BrokenPart(session.TrainedPart):
            n_calls = 0

            def forward(self, inputs):
                BrokenPart.n_calls += 1
                if BrokenPart.n_calls == 3:
                    raise RuntimeError("the memory of this process is full")
                return super().forward(inputs)

        session.TrainedPart = BrokenPart
    app(["train", config])
