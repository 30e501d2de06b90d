"""The clustering loss against the authors' TensorFlow code: golden values, a handful of them restated here."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score

from facetric import FacilityLocationLoss

pytestmark = pytest.mark.filterwarnings("ignore:.* has no pair of")  # some of the authors' edge cases


def ami_max(table):
    rows, columns = np.nonzero(table)
    counts = table[rows, columns]
    return adjusted_mutual_info_score(np.repeat(rows, counts), np.repeat(columns, counts), average_method="max")


MARGINS = {
    ("nmi", "geometric"): "nmi",
    ("nmi", "arithmetic"): "vmeasure",
    ("vmeasure", ""): "vmeasure",
    ("ami", "arithmetic"): "ami",
    ("ami", "max"): ami_max,
    ("ari", ""): "ari",
}


def load(folder):
    files = sorted([*folder.glob("c*.npz"), *folder.glob("edge_*.npz")])
    assert len(files) >= 20
    for file in files:
        with np.load(file) as case:
            yield file.stem, dict(case)


def run(case, dtype=torch.float32):
    embeddings = torch.tensor(case["embeddings"], dtype=dtype, requires_grad=True)
    loss = FacilityLocationLoss(
        float(case["gamma"]),
        margin=MARGINS[str(case["margin_type"]), str(case["average_method"])],
        refine="pam" if bool(case["enable_pam"]) else None,
        normalize=False,
    )
    labels = torch.tensor(case["labels"])
    value = loss(embeddings, labels)
    value.backward()
    return loss.explain(embeddings, labels), value.item(), embeddings.grad.numpy()


def test_medoids_are_the_authors_wherever_no_tie_is_on_the_path(golden_folder):
    compared = 0
    for name, case in load(golden_folder):
        if bool(case["ids_unambiguous"]):
            detail, _, _ = run(case, torch.float64)
            assert detail.medoids.tolist() == case["final_ids"].tolist(), name
            assert detail.assignment.tolist() == case["assignment"].tolist(), name
            compared += 1
    assert compared >= 5


def test_loss_and_gradient_are_the_authors(golden_folder):
    """The gradient is compared with the float64 recomputation of their code: its float32 distances, taken from dot products,
    are wrong for near-duplicates. Where that rounding made their PAM accept a worse medoid (a negative `pam_gap64`), ours must
    reach at least their objective and the gradients differ by design.
    """
    for name, case in load(golden_folder):
        detail, value, gradient = run(case)
        assert value == pytest.approx(float(case["loss"]), rel=1e-4, abs=1e-5), name
        assert detail.oracle_score == pytest.approx(float(case["score_gt"]), rel=1e-4), name
        assert detail.objective >= float(case["objective_final64"]) - 1e-5, name
        if np.min(case["pam_gap64"], initial=0.0) >= -1e-9:
            scale = max(1e-3, np.abs(case["grad64"]).max())
            np.testing.assert_allclose(gradient, case["grad64"], rtol=1e-3, atol=1e-3 * scale, err_msg=name)


def test_two_restated_golden_cases():
    """The authors' code on two small batches, without the folder of golden values."""
    separated = [
        [-0.947099, 0.3209416], [0.1222716, 0.9924967], [-0.9722723, 0.2338518], [-0.0763666, 0.9970798],
        [-0.8788195, 0.4771544], [0.2798686, 0.9600383], [-0.9440073, 0.3299246], [0.0392075, 0.9992311],
    ]  # fmt: skip
    loss = FacilityLocationLoss(0.0, refine=None, normalize=False)
    detail = loss.explain(torch.tensor(separated), torch.tensor([0, 1] * 4))
    assert detail.medoids.tolist() == [4, 7]
    assert (detail.value, detail.margin) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert detail.oracle_score == pytest.approx(-0.7134066, rel=1e-5)

    mixed = [
        [0.9143679, 0.4048845], [-0.8947344, -0.4465987], [0.9793646, -0.2021011], [-0.9782534, -0.2074132],
        [-0.9556908, -0.2943723], [0.006857, 0.9999765], [-0.9829432, 0.1839092], [-0.5389985, -0.8423067],
        [0.806453, 0.5912982], [0.3437518, 0.9390605], [0.9911833, -0.1324979], [-0.9892582, -0.1461784],
        [0.5675247, 0.8233564], [-0.311008, 0.9504073], [0.0466625, 0.9989107], [-0.9993691, -0.0355171],
    ]  # fmt: skip
    labels = torch.tensor([3, 2, 0, 1, 1, 0, 1, 2, 0, 1, 3, 2, 3, 0, 3, 2])
    embeddings = torch.tensor(mixed, requires_grad=True)
    loss = FacilityLocationLoss(1.0, refine=None, normalize=False)
    value = loss(embeddings, labels)
    value.backward()
    detail = loss.explain(embeddings, labels)
    assert detail.medoids.tolist() == [5, 3, 0, 2]
    assert value.item() == pytest.approx(5.648373, rel=1e-5)
    assert detail.margin == pytest.approx(1 - 0.4662651, rel=1e-5)
    assert embeddings.grad[0].tolist() == pytest.approx([0.1826491, 1.2904823], rel=1e-3)
