"""The demo: 60 points of 6 classes in the plane, moved by the gradient of the facility-location loss."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from facetric.losses import BatchExplanation, FacilityLocationLoss
from facetric.metrics import nmi

_N_CLASSES, _PER_CLASS = 6, 10
_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")
_WIDTH, _HEIGHT = 60, 22


def run_demo(*, n_steps: int, seed: int) -> None:
    """Optimise the points directly under the loss and print the clustering before and after."""
    console = Console()
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(_N_CLASSES).repeat_interleave(_PER_CLASS)
    centres = torch.randn(_N_CLASSES, 2, generator=generator)
    points = (centres[labels] + 0.9 * torch.randn(len(labels), 2, generator=generator)).requires_grad_()
    loss = FacilityLocationLoss(margin_weight=20.0, normalize=False)

    with console.status("Compiling the solver (some 20 seconds, only the first time)"):
        before = loss.explain(points, labels)
    console.print(_map(points, labels, before, "Before: letters are classes, capitals are the medoids that the solver found"))
    optimiser = torch.optim.Adam([points], lr=0.05)
    for _ in track(range(n_steps), description="Optimising", console=console, disable=not console.is_terminal):
        optimiser.zero_grad()
        loss(points, labels).backward()
        optimiser.step()
    after = loss.explain(points, labels)
    console.print(_map(points, labels, after, f"After {n_steps} steps"))

    table = Table(title=f"{len(labels)} points, {_N_CLASSES} classes")
    for column in ("", "loss", "F(S)", "oracle F̃", "margin Δ", "NMI of the clustering"):
        table.add_column(column, justify="right")
    for name, detail in (("before", before), ("after", after)):
        scores = (detail.value, detail.facility_score, detail.oracle_score, detail.margin, nmi(labels.numpy(), detail.assignment))
        table.add_row(name, *(f"{score:.3f}" for score in scores))
    console.print(table)


def _map(points: torch.Tensor, labels: torch.Tensor, detail: BatchExplanation, title: str) -> Text:
    """The points as coloured letters on a character grid; medoids are drawn last, as capitals."""
    positions = points.detach()
    low, high = positions.min(dim=0).values, positions.max(dim=0).values
    cells = ((positions - low) / (high - low).clamp_min(1e-9) * torch.tensor([_WIDTH - 1, _HEIGHT - 1])).round().long()
    medoids = set(detail.medoids.tolist())
    grid: dict[tuple[int, int], int] = {}
    for i in sorted(range(len(labels)), key=lambda i: i in medoids):
        grid[int(cells[i, 1]), int(cells[i, 0])] = i
    text = Text(f"{title}\n", style="bold")
    for row in range(_HEIGHT):
        for column in range(_WIDTH):
            if (row, column) not in grid:
                text.append(" ")
                continue
            i = grid[row, column]
            letter, colour = "abcdef"[int(labels[i])], _COLOURS[int(labels[i])]
            text.append(letter.upper() if i in medoids else letter, style=f"bold {colour}" if i in medoids else colour)
        text.append("\n")
    return text
