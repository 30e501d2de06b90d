"""The recommended loss in a LightningModule. Run: python examples/with_lightning.py (pip install pytorch-lightning)"""

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from facetric.losses import ClassBalancedBatches, GlobalBatch, MarginDecay, SubsampledLoss


class MetricLearning(lightning.LightningModule):
    def __init__(self, decay_every: int) -> None:
        super().__init__()
        self.network = torch.nn.Linear(32, 8)
        self.loss = GlobalBatch(SubsampledLoss())  # its γ and generators are in Lightning's checkpoints; right under DDP too
        self.decay = MarginDecay(self.loss, every=decay_every)

    def training_step(self, batch, number):
        images, labels = batch
        value = self.loss(self.network(images), labels)
        self.log("loss", value)
        return value

    def on_train_batch_end(self, outputs, batch, number):
        self.decay.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.network.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    targets = torch.arange(200) % 10
    inputs = torch.randn(10, 32)[targets] + torch.randn(200, 32)
    batches = ClassBalancedBatches(targets.numpy(), batch_size=40)
    loader = DataLoader(TensorDataset(inputs, targets), batch_sampler=batches)
    module = MetricLearning(decay_every=len(loader))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", **quiet)
    trainer.fit(module, loader)
    print(f"loss {trainer.callback_metrics['loss'].item():.3f}, γ scaled by {module.loss.loss.loss.margin_scale:.3f}")
