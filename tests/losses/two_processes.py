"""What one of two processes does in the tests of GlobalBatch."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from pytorch_metric_learning import losses as pml_losses
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from facetric.losses import FacilityLocationLoss, GlobalBatch, SubsampledLoss, TripletSemihardLoss

SHARES = {"equal": (12, 12), "unequal": (15, 9), "all on rank 0": (24, 0)}  # images of each rank


def proxies(seed):
    torch.manual_seed(seed)
    return pml_losses.ProxyAnchorLoss(num_classes=6, embedding_size=4).double()


LOSSES = {  # name: from a seed; it differs between the ranks, and rank 0's counts
    "facility_location": lambda seed: FacilityLocationLoss(inference="stochastic", refine=None, seed=seed),
    "subsampled": lambda seed: SubsampledLoss(FacilityLocationLoss(inference="random", seed=seed), n_subsets=3, seed=seed),
    "triplet_semihard": lambda seed: TripletSemihardLoss(),
    "sup_con": lambda seed: pml_losses.SupConLoss(),
    "proxy_anchor": proxies,
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def batches():
    """Two of them, 24 images of 6 classes each."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(24) % 6
    return [(torch.randn(24, 6, generator=generator, dtype=torch.float64), labels) for _ in range(2)]


def gradients(name, *, wrap, mine, seed):
    """The value and the gradients in two steps, from the rows `mine` of each batch; and how often the solver ran."""
    loss = LOSSES[name](seed)
    n_solved = count_inferences(loss)
    objective, embed = GlobalBatch(loss), wrap(network())
    found = {}
    for step, (images, labels) in enumerate(batches()):
        embed.zero_grad()
        loss.zero_grad()
        value = objective(embed(images[mine]), labels[mine])
        value.backward()
        found[f"{step} value"] = value.detach().reshape(1)
        inner = getattr(embed, "module", embed)
        named = [*inner.named_parameters(), *((f"loss.{key}", weights) for key, weights in loss.named_parameters())]
        found |= {f"{step} {key}": weights.grad.clone() for key, weights in named}
    return found, n_solved()


def count_inferences(loss):
    solvers = [part for part in loss.modules() if isinstance(part, FacilityLocationLoss)]
    counts = []
    for part in solvers:

        def counted(problem, infer=part._infer):
            counts.append(1)
            return infer(problem)

        part._infer = counted
    return lambda: len(counts)


def save_gradients(folder):
    rank = dist.get_rank()
    solved = {}
    for share, sizes in SHARES.items():
        mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        for name in LOSSES:
            found, solved[name] = gradients(name, wrap=DistributedDataParallel, mine=mine, seed=rank)
            save_file(found, Path(folder) / f"{share} {name} {rank}.safetensors")
    (Path(folder) / f"solved {rank}.json").write_text(json.dumps(solved))


def save_errors(folder):
    """Something is wrong in one process; every process says what it raised, and then goes on with a good batch."""
    rank = dist.get_rank()
    images, labels = batches()[0]
    embeddings = images[:12, :4]
    raised = {}

    def fails(table):
        raise ArithmeticError("no such score")

    objective = GlobalBatch(FacilityLocationLoss())
    attempts = {
        "no labels on rank 1": (objective, embeddings, labels[:12] if rank == 0 else None),
        "other dimensions on rank 1": (objective, embeddings[:, : 4 - rank], labels[:12]),
        "the solver fails": (GlobalBatch(FacilityLocationLoss(margin=fails)), embeddings, labels[:12]),
    }
    for what, (loss, *batch) in attempts.items():
        try:
            loss(*batch)
        except Exception as error:
            raised[what] = [type(error).__name__, str(error)]
    raised["afterwards"] = objective(embeddings, labels[:12]).item()
    (Path(folder) / f"raised {rank}.json").write_text(json.dumps(raised))


def main(task, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    {"gradients": save_gradients, "errors": save_errors}[task](folder)
    dist.destroy_process_group()
