"""What the card of a shared model says of its run: data by count and fingerprint, scores with what there is without training."""

from __future__ import annotations

from contextlib import suppress

from facetric.runs.run import Run
from facetric.text import counted


def model_card(run: Run, fingerprint: str) -> str:
    """Markdown, without a name of any photo, class, file or folder. The scores are those of the network with this fingerprint."""
    parts = ["## Scores", "It was not evaluated."]
    with suppress(ValueError):  # there are none, or of another checkpoint
        report = run.evaluation()
        if report.source.get("model") == fingerprint:
            parts[1] = f"Of classes that it was not trained on: {report.in_markdown()}"
    counts = {split: run.manifest.count(split) for split in ("train", "validation", "test")}
    listed = [f"{counted(n, 'image')} of {classes:,} classes ({split})" for split, (n, classes) in counts.items() if n]
    parts += ["## Data", f"{', '.join(listed)}; fingerprint {run.manifest.fingerprint[:12]}."]
    return "\n\n".join(parts)
