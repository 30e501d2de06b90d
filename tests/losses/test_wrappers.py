"""Our losses inside the wrappers of the real pytorch-metric-learning, against the loss of what each wrapper compares."""

import copy
import pickle

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from safetensors.torch import load_file
from torch import nn

import processes
from facetric.losses import LOSSES, FacilityLocationLoss, SubsampledLoss, for_pytorch_metric_learning
from losses.two_wrapped import batch, wrapped_gradients


def batches(n, *, size=12, n_classes=4):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, 5, generator=generator, dtype=torch.float64), torch.randint(n_classes, (size,), generator=generator))
        for _ in range(n)
    ]


def test_the_wrappers_refuse_our_losses_as_they_are():
    """If this fails, the adapter is no longer needed."""
    with pytest.raises(Exception, match="not supported for FacilityLocationLoss"):
        pml_losses.CrossBatchMemory(FacilityLocationLoss(), embedding_size=5)
    with pytest.raises(TypeError, match="must extend"):
        DistributedLossWrapper(FacilityLocationLoss())


@pytest.mark.parametrize("name", LOSSES)
def test_a_memory_gives_the_loss_of_the_batch_and_the_remembered_ones(name):
    memory = pml_losses.CrossBatchMemory(for_pytorch_metric_learning(LOSSES[name]()), embedding_size=5, memory_size=30)
    alone, slots, place = LOSSES[name](), [None] * 30, 0
    for embeddings, labels in batches(4):  # 48 rows: the memory comes around
        own = {(place + i) % 30 for i in range(len(labels))}
        others = [pair for slot, pair in enumerate(slots) if pair is not None and slot not in own]
        mine, ours = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        found = memory(mine, labels)
        rows = torch.cat([ours, *(row[None] for row, _ in others)])
        expected = alone(rows, torch.cat([labels, *(label[None] for _, label in others)]))
        found.backward()
        expected.backward()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(mine.grad, ours.grad)
        for row, label in zip(embeddings, labels, strict=True):
            slots[place % 30] = (row, label)
            place += 1


@pytest.mark.parametrize("symmetric", [True, False])
def test_two_views_of_every_image_are_a_class_each(symmetric):
    (views, _), (others, _) = batches(2)
    wrapped = pml_losses.SelfSupervisedLoss(for_pytorch_metric_learning(FacilityLocationLoss()), symmetric=symmetric)
    expected = FacilityLocationLoss()(torch.cat([views, others]), torch.arange(12).repeat(2))
    assert expected > 0
    torch.testing.assert_close(wrapped(views, others), expected)


def test_two_processes_have_the_gradient_of_one(tmp_path):
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    children = processes.start_ranks(tmp_path, logs=logs, function="losses.two_wrapped:main")
    assert processes.wait_all(children) == [0, 0], [log.read_text() for log in logs]
    embeddings, labels = batch()
    expected = wrapped_gradients(FacilityLocationLoss(), embeddings, labels)
    for rank in (0, 1):
        for kind, found in load_file(tmp_path / f"{rank}.safetensors").items():
            torch.testing.assert_close(found, expected, msg=lambda text, kind=kind: f"{kind}: {text}")


def test_the_adapter_names_the_loss_within_is_copied_and_pickled_and_trains_in_a_module():
    wrapped = for_pytorch_metric_learning(SubsampledLoss(n_subsets=3))
    assert "SubsampledLoss" in repr(wrapped)
    assert "Contrastive" not in repr(wrapped)
    embeddings, labels = batches(1)[0]
    expected = SubsampledLoss(n_subsets=3)(embeddings, labels)
    for same in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped)), nn.ModuleList([wrapped])[0]):
        torch.testing.assert_close(same(embeddings, labels), expected)


def test_what_is_no_loss_and_references_without_labels_are_refused():
    with pytest.raises(ValueError, match="loss must be a module called as loss"):
        for_pytorch_metric_learning("triplet")
    embeddings, labels = batches(1)[0]
    with pytest.raises(ValueError, match="reference embeddings need labels: pass ref_labels"):
        for_pytorch_metric_learning(FacilityLocationLoss())(embeddings, labels, ref_emb=embeddings)
