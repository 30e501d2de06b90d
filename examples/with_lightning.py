"""The recommended loss in a LightningModule, stopped in the middle and resumed.

Run: python examples/with_lightning.py (pip install pytorch-lightning)
"""

import tempfile
from pathlib import Path

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from facetric.losses import ClassBalancedBatches, GlobalBatch, MarginDecay, SubsampledLoss


class MetricLearning(lightning.LightningModule):
    def __init__(self, batches: ClassBalancedBatches) -> None:
        super().__init__()
        self.network = torch.nn.Linear(32, 8)
        self.loss = GlobalBatch(SubsampledLoss())  # right under DDP too
        self.decay = MarginDecay(self.loss, every=4)  # its steps are in Lightning's checkpoints, like the loss's generators
        self.batches = batches

    def training_step(self, batch, number):
        images, labels = batch
        value = self.loss(self.network(images), labels)
        self.log_dict({"loss": value, "nmi": self.loss.last.nmi})
        return value

    def on_before_optimizer_step(self, optimizer):  # not on_train_batch_end, which comes after a checkpoint is written
        self.decay.step()

    def on_load_checkpoint(self, checkpoint):
        self.batches.seek(checkpoint["global_step"])

    def configure_optimizers(self):
        return torch.optim.Adam(self.network.parameters(), lr=0.01)


def fit(epochs: int, checkpoint: Path, *, resume: bool = False) -> MetricLearning:
    lightning.seed_everything(0, verbose=False)
    targets = torch.arange(200) % 10
    inputs = torch.randn(10, 32)[targets] + torch.randn(200, 32)
    batches = ClassBalancedBatches(targets.numpy(), batch_size=40)
    module = MetricLearning(batches)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet)
    trainer.fit(
        module, DataLoader(TensorDataset(inputs, targets), batch_sampler=batches), ckpt_path=checkpoint if resume else None
    )
    trainer.save_checkpoint(checkpoint)
    return module


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        whole = fit(4, Path(folder) / "whole.ckpt")
        fit(2, Path(folder) / "half.ckpt")
        resumed = fit(4, Path(folder) / "half.ckpt", resume=True)
    assert torch.equal(resumed.network.weight, whole.network.weight)
    assert resumed.loss.last.margin_weight == whole.loss.last.margin_weight
    print(f"stopped after 2 of 4 epochs and resumed: the same weights and γ ({whole.loss.last.margin_weight:.2f}), bit for bit")
