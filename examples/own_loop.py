"""The recommended loss in a PyTorch loop of your own, with a checkpoint that resumes exactly. Run: python examples/own_loop.py"""

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

network = nn.Linear(32, 8)  # or any nn.Module
batches = ClassBalancedBatches(targets[seen].numpy(), batch_size=40)
loader = DataLoader(TensorDataset(inputs[seen], targets[seen]), batch_sampler=batches)
loss = SubsampledLoss()  # GlobalBatch(SubsampledLoss()) under DistributedDataParallel
decay = MarginDecay(loss, every=len(loader))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)


def recall() -> float:
    with torch.no_grad():
        return recall_at_k(network(inputs[~seen]).numpy(), targets[~seen].numpy(), ks=(1,))[1]


print(f"Recall@1 on unseen classes before training: {100 * recall():.1f}%")
for _ in range(20):
    for images, labels in loader:
        optimizer.zero_grad()
        loss(network(images), labels).backward()
        optimizer.step()
        decay.step()
print(f"after training: {100 * recall():.1f}%")

# γ and the generators are in the state of the loss.
parts = {"network": network, "loss": loss, "decay": decay, "optimizer": optimizer}
state = {name: part.state_dict() for name, part in parts.items()}
print("a checkpoint holds", ", ".join(state))
