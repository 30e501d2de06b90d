"""What the first process writes while a run trains: rows, weights, checkpoints, and lines for the user."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from safetensors.torch import save

from facetric.embedder import Network, WeightsError, load
from facetric.files import write_atomically
from facetric.runs import DivergedError, Run, TrainConfig
from facetric.training.display import HEADINGS, Display
from facetric.training.loggers import start_loggers
from facetric.training.session import Session
from facetric.training.step import Step, StepClock
from facetric.training.validation import CALMER, CollapseWatch, Scores, refuse_non_finite_weights, scores_of

OnTrainingStep = Callable[[int, float], None]  # called with the step and its loss
OnValidation = Callable[[int, Scores], None]  # called with the step and the scores by name


@dataclass
class History:
    """How far a run is, and the scores on the way."""

    step: int = 0
    validation: dict[int, Scores] = field(default_factory=dict)

    def best_step(self, metric: str, *, after: int = -1) -> int | None:
        """The validated step with the highest score, of ties the one with the highest MAP@R, then the first.

        Step 0 counts: where no step is better, the network is kept as it was before training.
        """
        found = {step: (scores[metric], scores["map_at_r"], -step) for step, scores in self.validation.items() if step > after}
        return max(found, key=found.__getitem__, default=None)

    def verdict(self, metric: str) -> str | None:
        """One sentence: what training changed on the validation classes, and whether it is kept. None without validation."""
        best, trained = self.best_step(metric), self.best_step(metric, after=0)
        if trained is None or 0 not in self.validation:
            return None
        before, after = (100 * self.validation[step][metric] for step in (0, trained))
        if best == trained:
            kept = f"kept (best.safetensors is step {trained})"
        else:
            kept = "not kept (best.safetensors is the network before training)"
        score = HEADINGS[metric].replace("R@", "Recall@")
        return f"on validation classes training moved {score} from {before:.1f} to {after:.1f}; {kept}"


class Writer:
    """Belongs to the first process; the others have none."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        display: Display,
        history: History,
        on_step: OnTrainingStep | None,
        on_validation: OnValidation | None,
    ) -> None:
        self.config, self.run, self.display, self.history = config, run, display, history
        self.on_step, self.on_validation = on_step, on_validation
        self.loggers = start_loggers(config, run, from_step=history.step) if config.run.loggers else []
        self.watch, self._n_unlogged = CollapseWatch(loss_name=config.loss.name), 0
        self._used: tuple[int, Network | None] = (-1, None)
        display.start(history.step)

    def stepped(self, session: Session, done: Step, clock: StepClock, *, due: bool) -> None:
        """After every step; when it is due, a row of metrics.jsonl."""
        if not done.is_finite:
            self._refuse_non_finite(done)
        self._n_unlogged += 1
        with clock.part("logging"):
            for warning in (self.watch.idle(done.loss > 0), self.watch.spread(done.embeddings) if due else None):
                if warning is not None:
                    self.display.warn(f"step {done.number}: {warning}")
            self.display.stepped(done.number)
            if self.on_step is not None:
                self.on_step(done.number, done.loss)
        if due:
            timing = clock.row(n_steps=self._n_unlogged, batch_size=self.config.batches.size)
            self._n_unlogged = 0
            with clock.part("logging"):
                row = {**_row(session, done), "timing": timing}
                self.append(row)
                self.display.logged(row)

    def append(self, row: dict[str, Any]) -> None:
        self.run.log(row)
        for logger in self.loggers:
            with self.run.writing():
                logger.append(row)

    def validate(self, session: Session) -> None:
        """Score the held-out classes; keep the weights if they are the best so far."""
        if session.held_out is None:
            return
        start, step = time.perf_counter(), self.history.step
        refuse_non_finite_weights(session.embedder, step)
        embedder = self._for_use(session)
        vectors, labels = session.held_out_vectors(embedder, step=step), session.held_out.labels
        scores = scores_of(vectors, labels, metric=session.metric)
        self.history.validation[step] = scores
        self.append({"step": step, "validation": scores, "timing": {"validation_seconds": time.perf_counter() - start}})
        best = self.history.best_step(self.config.run.best_metric) == step
        if best:
            self.run.save(embedder, "best")
        self.display.validated(step, scores, best=best)
        if self.on_validation is not None:
            self.on_validation(step, dict(scores))

    def checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        refuse_non_finite_weights(session.embedder, self.history.step)
        finished = self.history.step == self.config.run.steps
        state |= {"step": self.history.step, "validation": self.history.validation}
        self.run.save(self._for_use(session) if finished else session.embedder, "last", state)

    def restore_last(self, session: Session) -> None:
        """Write the embedder of a finished run again if it is missing or damaged; the state has its tensors."""
        path = self.run.network_file("last")
        try:
            load(path, device="cpu")
        except WeightsError:
            state = f"the resume state of step {self.history.step}"
            self.display.warn(f"{path} is {'damaged' if path.exists() else 'missing'}: it is written again from {state}")
            self.run.save(self._for_use(session), "last")

    def _for_use(self, session: Session) -> Network:
        """`Session.for_use`, once per step."""
        step, embedder = self._used
        if embedder is None or step != self.history.step:
            embedder = session.for_use()
            self._used = self.history.step, embedder
        return embedder

    def _refuse_non_finite(self, done: Step) -> NoReturn:
        """Save the batch that gave no finite loss, and stop."""
        what = "loss is" if torch.isfinite(done.embeddings).all() else "embeddings are"
        tensors = {"inputs": done.batch.inputs, "labels": done.labels, "embeddings": done.embeddings}
        tensors["image_ids"] = torch.from_numpy(done.batch.image_ids)
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        path = self.run.path / f"nonfinite_step_{done.number}.safetensors"
        with self.run.writing():
            write_atomically(path, save(plain, metadata={"step": str(done.number)}))
        raise DivergedError(f"the {what} not finite in step {done.number}; the batch is in {path}: {CALMER}")

    def close(self) -> None:
        self.display.stop()
        for logger in self.loggers:
            logger.close()


def _row(session: Session, done: Step) -> dict[str, Any]:
    """A row of metrics.jsonl, but for its timing. The terms of the clustering loss are null for other losses."""
    explained = getattr(session.loss, "last", None)  # F, F̃, Δ, the NMI of the clusters, γ
    terms = {key: key for key in ("facility_score", "oracle_score", "margin", "margin_weight")} | {"batch_nmi": "nmi"}
    rates = {str(group["name"]): float(group["lr"]) for group in session.optimizer.param_groups}
    return {
        "step": done.number,
        "loss": done.loss,
        **{key: getattr(explained, term, None) for key, term in terms.items()},
        "backbone_lr": rates.get("backbone", rates.get("backbone_no_decay")),
        "head_lr": rates["head"],
    }
