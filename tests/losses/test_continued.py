"""Ways to train with our losses: stopped in the middle and resumed by new objects, a run ends as one that was never stopped.

`python tests/losses/test_continued.py` prints the table of docs/own_loop.md.
"""

import os
import sys
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[1]))  # as a program

import processes
from facetric.losses import ClassBalancedBatches, FacilityLocationLoss, GlobalBatch, MarginDecay, SubsampledLoss

STEPS, HALF = 12, 6  # a pass has 4: runs stop within one
LABELS = torch.arange(200) % 10


def dataset():
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(10, 32, generator=generator)
    return TensorDataset(centers[LABELS] + torch.randn(200, 32, generator=generator), LABELS)


class Parts:
    """All that a run is made of, and what a checkpoint holds of it."""

    def __init__(self, *, rank=0, world_size=1):
        torch.manual_seed(1)
        self.network = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 8))
        self.loss = GlobalBatch(SubsampledLoss(FacilityLocationLoss(inference="stochastic"), n_subsets=4))
        self.decay = MarginDecay(self.loss, every=2, rate=0.8)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        share = {"rank": rank, "world_size": world_size}
        self.batches = ClassBalancedBatches(LABELS, batch_size=40, n_batches=4, **share)

    def state_dict(self):
        return {name: part.state_dict() for name, part in vars(self).items()}

    def load_state_dict(self, state):
        for name, part in vars(self).items():
            part.load_state_dict(state[name])

    def epochs(self):
        loader = DataLoader(dataset(), batch_sampler=self.batches)
        while True:
            yield from loader


def plain(
    steps, checkpoint, *, resume=False, wrap=lambda network: network, compiled=False, accumulated=1, autocast=False, **shares
):
    """A loop of one's own, to `steps`, from the checkpoint if it resumes; it leaves the checkpoint that it ends with."""
    parts = Parts(**shares)
    if resume:
        parts.load_state_dict(torch.load(checkpoint, weights_only=True))
    network, loss = wrap(parts.network), parts.loss

    def value_of(images, labels):
        return loss(network(images), labels)

    step = torch.compile(value_of, backend=compiled, fullgraph=True) if compiled else value_of
    batches = parts.epochs()
    while parts.batches.position < steps:
        parts.optimizer.zero_grad()
        for _ in range(accumulated):
            with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext():
                value = step(*next(batches))
            (value / accumulated).backward()
        parts.optimizer.step()
        parts.decay.step()
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(parts.state_dict(), checkpoint)
    return parts


def fabric(steps, checkpoint, *, resume=False):
    parts, engine = Parts(), Fabric(accelerator="cpu", devices=1)
    network, optimizer = engine.setup(parts.network, parts.optimizer)
    state = {"network": network, "optimizer": optimizer, "loss": parts.loss, "decay": parts.decay, "batches": parts.batches}
    if resume:
        engine.load(checkpoint, state)
    batches = parts.epochs()
    while parts.batches.position < steps:
        optimizer.zero_grad()
        images, labels = next(batches)
        engine.backward(parts.loss(network(images), labels))
        optimizer.step()
        parts.decay.step()
    engine.save(checkpoint, state)
    return parts


def lightning(steps, checkpoint, *, resume=False):
    import pytorch_lightning

    parts = Parts()

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.loss, self.decay = parts.network, parts.loss, parts.decay

        def training_step(self, batch, number):
            return self.loss(self.network(batch[0]), batch[1])

        def on_before_optimizer_step(self, optimizer):
            self.decay.step()

        def on_load_checkpoint(self, checkpoint):
            parts.batches.seek(checkpoint["global_step"])

        def configure_optimizers(self):
            return parts.optimizer

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pytorch_lightning.Trainer(max_steps=steps, accelerator="cpu", **quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its loader has few workers, and cannot itself resume within an epoch
        loader = DataLoader(dataset(), batch_sampler=parts.batches)
        trainer.fit(Module(), loader, ckpt_path=checkpoint if resume else None, weights_only=True if resume else None)
    trainer.save_checkpoint(checkpoint)
    return parts


def pytorch_metric_learning(steps, checkpoint, *, resume=False):
    from pytorch_metric_learning.trainers import MetricLossOnly

    parts = Parts()
    if resume:
        parts.load_state_dict(torch.load(checkpoint, weights_only=True))

    class Order(torch.utils.data.Sampler):
        def __iter__(self):
            for batch in parts.batches:
                yield from batch

    trainer = MetricLossOnly(
        models={"trunk": parts.network},
        optimizers={"trunk_optimizer": parts.optimizer},
        batch_size=40,
        loss_funcs={"metric_loss": parts.loss},
        dataset=dataset(),
        sampler=Order(),
        dataloader_num_workers=0,
        iterations_per_epoch=HALF,
        end_of_iteration_hook=lambda trainer: parts.decay.step(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about how their progress bar shows a loss
        trainer.train(start_epoch=1 + parts.batches.position // HALF, num_epochs=steps // HALF)
    torch.save(parts.state_dict(), checkpoint)
    return parts


def compiled_model(steps, checkpoint, *, backend="inductor", **options):
    return plain(steps, checkpoint, wrap=lambda network: torch.compile(network, backend=backend), **options)


def compiled_step(steps, checkpoint, *, backend="inductor", **options):
    return plain(steps, checkpoint, compiled=backend, **options)


WAYS = {
    "a loop of your own": plain,
    "`torch.compile(network)`": compiled_model,
    "`torch.compile(step, fullgraph=True)`": compiled_step,
    "Fabric": fabric,
    "Lightning, `ckpt_path`": lightning,
    "trainer of pytorch-metric-learning": pytorch_metric_learning,
    "gradients of two batches a step": lambda *arguments, **options: plain(*arguments, accumulated=2, **options),
    "bf16 autocast": lambda *arguments, **options: plain(*arguments, autocast=True, **options),
}
BY_TWO = "DDP, two processes, `GlobalBatch`"


def weights(parts):
    return torch.cat([tensor.detach().flatten() for tensor in parts.network.parameters()])


def resumed(way, folder, **options):
    """The parts of a run that was not stopped, and of one that was."""
    whole = way(STEPS, folder / "whole.pt", **options)
    way(HALF, folder / "half.pt", **options)
    return whole, way(STEPS, folder / "half.pt", resume=True, **options)


def differences(one, other, path=""):
    """Where two states differ in any bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return [found for key in one for found in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, list):
        return differences(dict(enumerate(one)), dict(enumerate(other)), path)
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same else [path]


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    return plain(STEPS, tmp_path_factory.mktemp("eager") / "whole.pt")


@pytest.mark.parametrize("name", WAYS)
def test_a_resumed_run_ends_bit_for_bit_as_one_that_was_never_stopped(name, eager, tmp_path):
    options = {"backend": "aot_eager"} if "compile" in name else {}
    whole, stopped = resumed(WAYS[name], tmp_path, **options)
    assert differences(whole.state_dict(), stopped.state_dict()) == []
    assert stopped.batches.position == STEPS
    assert stopped.loss.loss.loss.margin_scale == 0.8 ** (stopped.decay.n_steps // 2) < 1
    before = torch.cat([tensor.detach().flatten() for tensor in Parts().network.parameters()])
    assert (weights(stopped) - before).abs().max() > 0.02
    if "two batches" not in name and "bf16" not in name:
        torch.testing.assert_close(weights(whole), weights(eager), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", [compiled_model, compiled_step])
def test_so_does_what_inductor_compiles(way, eager, tmp_path):
    whole, stopped = resumed(way, tmp_path)
    assert differences(whole.state_dict(), stopped.state_dict()) == []
    torch.testing.assert_close(weights(whole), weights(eager), rtol=0, atol=1e-5)


def by_two(folder):
    """One of two processes: a run that is not stopped, and one that is."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    shares = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}

    def way(*arguments, **options):
        dist.barrier()  # the checkpoint is there
        return plain(*arguments, wrap=DistributedDataParallel, **shares, **options)

    whole, stopped = resumed(way, Path(folder))
    states = {"whole": whole.state_dict(), "stopped": stopped.state_dict(), "weights": weights(stopped)}
    torch.save(states, Path(folder) / f"{dist.get_rank()}.pt")
    dist.destroy_process_group()


def run_by_two(folder):
    logs = [folder / "0.log", folder / "1.log"]
    children = processes.start_ranks(folder, logs=logs, function="losses.test_continued:by_two")
    assert processes.wait_all(children) == [0, 0], [log.read_text() for log in logs]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


def test_so_do_two_processes(eager, tmp_path):
    first, second = run_by_two(tmp_path)
    assert differences(first["whole"], first["stopped"]) == []  # medoids are found on rank 0: the other's generator rests
    assert torch.equal(first["weights"], second["weights"])
    torch.testing.assert_close(first["weights"], weights(eager), rtol=0, atol=1e-5)


def test_the_docs_have_these_ways():
    page = (Path(__file__).parents[2] / "docs" / "own_loop.md").read_text()
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| ") and "bitwise" in line]
    assert rows == [[f"| {name}", "bitwise equal"] for name in (*WAYS, BY_TWO)]


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(tempfile.mkdtemp())
    expected = weights(plain(STEPS, folder / "eager.pt"))
    print("| way | resumed | weights beside the first row's |\n|---|---|---|")

    def row(name, differing, found):
        apart = (found - expected).abs().max().item()
        beside = "other batches" if "two batches" in name else f"{apart:.0e} apart" if apart else "bitwise equal"
        print(f"| {name} | {', '.join(differing) or 'bitwise equal'} | {beside} |")

    for name, way in WAYS.items():
        whole, stopped = resumed(way, folder)
        row(name, differences(whole.state_dict(), stopped.state_dict()), weights(whole))
    first, _ = run_by_two(folder)
    row(BY_TWO, differences(first["whole"], first["stopped"]), first["weights"])


if __name__ == "__main__":
    main()
