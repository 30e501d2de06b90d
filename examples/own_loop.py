"""The recommended loss in a PyTorch loop of your own, stopped in the middle and resumed. Run: python examples/own_loop.py"""

import io

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from facetric.losses import ClassBalancedBatches, MarginDecay, SubsampledLoss
from facetric.metrics import recall_at_k

torch.manual_seed(0)
targets = torch.arange(400) % 20  # 20 classes; the last 10 are never trained on
signal = torch.randn(20, 8)[targets] + 0.5 * torch.randn(400, 8)
inputs = torch.cat([signal, 3 * torch.randn(400, 24)], dim=1)  # 8 of 32 columns say something about the class
seen = targets < 10


class Training:
    def __init__(self) -> None:
        torch.manual_seed(1)
        self.network = nn.Linear(32, 8)  # or any nn.Module
        self.batches = ClassBalancedBatches(targets[seen].numpy(), batch_size=40)
        self.loss = SubsampledLoss()  # GlobalBatch(SubsampledLoss()) under DistributedDataParallel
        self.decay = MarginDecay(self.loss, every=20)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)

    def train(self, n_passes: int) -> None:
        loader = DataLoader(TensorDataset(inputs[seen], targets[seen]), batch_sampler=self.batches)
        for _ in range(n_passes):
            for images, labels in loader:
                self.optimizer.zero_grad()
                self.loss(self.network(images), labels).backward()
                self.optimizer.step()
                self.decay.step()

    def recall(self) -> float:
        with torch.no_grad():
            return recall_at_k(self.network(inputs[~seen]).numpy(), targets[~seen].numpy(), ks=(1,))[1]


whole = Training()
print(f"Recall@1 on unseen classes before training: {100 * whole.recall():.1f}%")
whole.train(20)
print(f"after training: {100 * whole.recall():.1f}%, γ {whole.loss.last.margin_weight:.2f}")

stopped = Training()
stopped.train(8)
checkpoint = io.BytesIO()  # or a file
torch.save({name: part.state_dict() for name, part in vars(stopped).items()}, checkpoint)

resumed = Training()
checkpoint.seek(0)
for name, state in torch.load(checkpoint, weights_only=True).items():
    getattr(resumed, name).load_state_dict(state)
resumed.train(12)
assert torch.equal(resumed.network.weight, whole.network.weight)
assert resumed.loss.last.margin_weight == whole.loss.last.margin_weight
print("stopped after 8 passes and resumed: the same weights and γ, bit for bit")
