"""GlobalBatch in two real processes is the loss of one process with the whole batch."""

import json

import pytest
import torch
from safetensors.torch import load_file

import processes
from facetric.losses import FacilityLocationLoss, GlobalBatch
from losses.two_processes import LOSSES, SHARES, batches, gradients


def in_two_processes(task, folder):
    logs = [folder / "0.log", folder / "1.log"]
    children = processes.start_ranks(task, folder, logs=logs, function="losses.two_processes:main")
    assert processes.wait_all(children) == [0, 0], [log.read_text() for log in logs]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradients")
    in_two_processes("gradients", folder)
    return folder


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("share", SHARES)
def test_the_gradient_of_two_processes_is_that_of_one(found, share, name):
    expected, _ = gradients(name, wrap=lambda network: network, mine=slice(None), seed=0)
    assert all(tensor.abs().max() > 0 for tensor in expected.values())
    for rank in (0, 1):
        tensors = load_file(found / f"{share} {name} {rank}.safetensors")
        assert tensors.keys() == expected.keys()
        for key, tensor in expected.items():
            torch.testing.assert_close(tensors[key], tensor, rtol=1e-12, atol=1e-12, msg=lambda m, k=key: f"{k}: {m}")


def test_the_solver_runs_on_rank_0_alone(found):
    solved = [json.loads((found / f"solved {rank}.json").read_text()) for rank in (0, 1)]
    assert [counts["facility_location"] for counts in solved] == [2, 0]
    assert [counts["subsampled"] for counts in solved] == [6, 0]


def test_an_error_in_one_process_is_an_error_in_all_and_none_waits(tmp_path):
    in_two_processes("errors", tmp_path)
    first, second = (json.loads((tmp_path / f"raised {rank}.json").read_text()) for rank in (0, 1))
    assert first["no labels on rank 1"][0] == "PeerError"
    assert first["no labels on rank 1"][1].startswith("rank 1: labels must be integers")
    assert second["no labels on rank 1"][0] == "ValueError"
    message = "embeddings have 4 dimensions in torch.float64 on rank 0 and 3 dimensions in torch.float64 on rank 1"
    for raised in (first, second):
        assert raised["other dimensions on rank 1"] == ["ValueError", f"{message}: run the same network everywhere"]
    assert first["the solver fails"] == ["ArithmeticError", "no such score"]
    assert second["the solver fails"] == ["PeerError", "rank 0: no such score"]
    assert first["afterwards"] == second["afterwards"] > 0


def test_in_one_process_it_is_the_loss_itself():
    images, labels = batches()[0]
    one, other = (images.clone().requires_grad_() for _ in range(2))
    value = GlobalBatch(FacilityLocationLoss())(one, labels)
    value.backward()
    plain = FacilityLocationLoss()(other, labels)
    plain.backward()
    assert value.item() == plain.item()
    assert torch.equal(one.grad, other.grad)


def test_what_is_not_a_loss_is_refused():
    with pytest.raises(ValueError, match="loss must be a module"):
        GlobalBatch(FacilityLocationLoss)
