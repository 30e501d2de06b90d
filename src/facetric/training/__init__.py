"""Training: from a configuration to a run folder."""

from facetric.training.loop import RunResult, resume, train

__all__ = ["RunResult", "resume", "train"]
