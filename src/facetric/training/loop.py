"""Training, from top to bottom: a configuration goes in, a run folder comes out (the paper's "Implementation details")."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console

from facetric.images import ImageDataset
from facetric.runs import Run, TrainConfig, new_images, open_run
from facetric.training.choice import check_choice, choose
from facetric.training.display import Display
from facetric.training.feed import classes_tested
from facetric.training.loggers import describe_environment, require_loggers, say_differences
from facetric.training.processes import Interruption, Processes
from facetric.training.session import Session, start_fabric, torch_settings
from facetric.training.step import StepClock, take_steps
from facetric.training.validation import Scores, check_validation
from facetric.training.writer import History, OnTrainingStep, OnValidation, Writer


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run."""

    folder: Path
    step: int  # steps trained so far
    finished: bool
    signal_number: int  # of the signal that stopped the run, or came in its last step; 0 for none
    best_step: int | None  # None without validation; 0 where no step was better than the network before training
    validation: dict[int, Scores] = field(default_factory=dict)  # step → scores; 0 is the network before training

    @property
    def run(self) -> Run:
        """The run folder."""
        return Run(self.folder)


def train(
    config: TrainConfig,
    dataset: ImageDataset | None = None,
    *,
    console: Console | None = None,
    on_step: OnTrainingStep | None = None,
    on_validation: OnValidation | None = None,
) -> RunResult:
    """Train a new run. Its folder must not exist; whatever stops training, `resume` continues from the last checkpoint.

    `dataset` is that of the configuration where it is loaded already, as `recipe` does; it is loaded now without one.
    Progress is shown on `console`; without one, as a bar in a notebook, and messages go through logging under the name
    "facetric". `on_step` is called with the step and its loss after every step, `on_validation` with the step and the scores
    after every validation, that of step 0 (before training) included; of several processes the first calls them. An exception
    from them ends training. Settings of torch that a run needs (threads, generators, determinism) are restored at the end.
    """
    run, calls = Run.new(config), (on_step, on_validation)
    return _run(run, dataset, is_new=True, accept_changes=False, console=console, calls=calls)


def resume(
    run_folder: str | os.PathLike[str],
    *,
    accept_changes: bool = False,
    console: Console | None = None,
    on_step: OnTrainingStep | None = None,
    on_validation: OnValidation | None = None,
) -> RunResult:
    """Resume a stopped run from its newest checkpoint; the result is that of a run that never stopped.

    Training images that have changed since the run began stop it unless `accept_changes`. The rest is as in `train`.
    """
    run, calls = open_run(Path(run_folder).absolute()), (on_step, on_validation)
    return _run(run, None, is_new=False, accept_changes=accept_changes, console=console, calls=calls)


def _run(
    run: Run,
    dataset: ImageDataset | None,
    *,
    is_new: bool,
    accept_changes: bool,
    console: Console | None,
    calls: tuple[OnTrainingStep | None, OnValidation | None],
) -> RunResult:
    config = run.config
    require_loggers(config.run.loggers)
    if config.run.threads is None:  # recorded: sums depend on it, and a resumed run must use the same
        config = config.model_copy(update={"run": config.run.model_copy(update={"threads": torch.get_num_threads()})})
    with ExitStack() as stack, torch_settings(threads=config.run.threads or 1):
        fabric = start_fabric(config.run)
        processes = Processes(fabric.device)
        display = Display(console, n_steps=config.run.steps, silent=not processes.is_first)
        # Configuration errors are found before the folder is created; the long work comes after.
        with processes.fail_together():
            if is_new:
                dataset = new_images(config.data, validate=config.run.validate_every > 0, dataset=dataset)
            else:
                dataset, changes = run.images_to_resume(accept_changes=accept_changes)
                for line in changes.lines():
                    display.warn(line)
            session = Session(config, dataset, fabric, processes)
            if config.run.choose_minutes:
                check_choice(session, dataset)
            if session.held_out is not None:
                check_validation(session.held_out.labels)
            if processes.is_first:
                environment = describe_environment(seed=config.run.seed, device=fabric.device, n_processes=processes.n)
                if not is_new:
                    say_differences(run.environment_file, environment, display.warn)
                stack.enter_context(run.begun(config, environment, dataset) if is_new else run.locked())
        if config.run.choose_minutes:
            with Interruption() as interruption:
                chosen = choose(config, dataset, run, display, stopped=lambda: bool(interruption.signal_number))
            if chosen is None or interruption.signal_number:
                return _conclude(config, run, display, History(), interruption.signal_number)
            config, display.n_steps = chosen, chosen.run.steps
            session = Session(config, dataset, fabric, processes)
        state = processes.broadcast(lambda: None if is_new else run.state_to_resume())
        display.say(
            f"{'training' if is_new else 'resuming'} {run.path}: {session.training} to train"
            + (f", {session.held_out} to validate" if session.held_out is not None else "")
            + f"; test classes: {classes_tested(dataset)}"
        )
        session.start(fresh=state is None)
        history = History()
        if state is not None:
            session.load_state_dict(state)
            history = History(step=state["step"], validation=dict(state["validation"]))
        if not is_new:
            display.say(f"resuming from step {history.step} of {config.run.steps}")
        writer = None
        with processes.fail_together():
            if processes.is_first:
                writer = Writer(config, run, display, history, *calls)
                stack.callback(writer.close)
                if state is not None and history.step == config.run.steps:
                    writer.restore_last(session)
        signal_number = _train_steps(session, history, writer, each_step=calls[0] is not None)
    return _conclude(config, run, display, history, signal_number)


def _train_steps(session: Session, history: History, writer: Writer | None, *, each_step: bool) -> int:
    """The loop. Returns the number of the signal that stopped it, or came in its last step; 0 for none."""
    run, processes, clock = session.config.run, session.processes, StepClock(session.fabric.device)
    signal_number = 0
    with processes.fail_together():
        if history.step == 0 and writer is not None:
            writer.validate(session)
    with Interruption() as interruption:
        for done in take_steps(session, clock, after=history.step):
            step = history.step = done.number
            is_last = step == run.steps
            due = is_last or step % run.log_every == 0
            with processes.fail_together() if due or each_step or not done.is_finite else ExitStack():
                if writer is not None:
                    writer.stepped(session, done, clock, due=due)
            if run.validate_every and (is_last or step % run.validate_every == 0):
                with processes.fail_together():
                    if writer is not None:
                        writer.validate(session)
            signal_number = processes.maximum(interruption.signal_number)
            if is_last or signal_number or step % run.checkpoint_every == 0:
                _checkpoint(session, writer)
            if signal_number:
                return signal_number
    if run.steps == 0:
        _checkpoint(session, writer)
    return processes.maximum(interruption.signal_number)


def _checkpoint(session: Session, writer: Writer | None) -> None:
    state = session.state_dict()
    with session.processes.fail_together():
        if writer is not None:
            writer.checkpoint(session, state)


def _conclude(config: TrainConfig, run: Run, display: Display, history: History, signal_number: int) -> RunResult:
    """The closing lines, and the result."""
    best = history.best_step(config.run.best_metric)
    finished = history.step >= config.run.steps and not config.run.choose_minutes
    if signal_number and not finished:
        where = "while choosing" if config.run.choose_minutes else f"after step {history.step}, which was saved"
        display.say(f"stopped by a signal {where}. To continue: {run.resume_command}")
    else:
        moments = {"before training": 0, f"best, step {best}": best, f"last, step {history.step}": history.step}
        if best == 0:
            moments.pop("best, step 0")
        rows = {name: history.validation[step] for name, step in moments.items() if step in history.validation}
        display.table("Validation, on classes that were not trained on", rows)
        if (verdict := history.verdict(config.run.best_metric)) is not None:
            display.say(verdict)
        if run.choice_file.exists() and (why := run.why_chosen()):
            display.say(why)
        if config.data.all_classes:
            display.say(f"the run is in {run.path}; it was trained on all classes, which leaves none to score it on")
        else:
            display.say(f"the run is in {run.path}; next: facetric evaluate {run.path}")
    return RunResult(
        folder=run.path,
        step=history.step,
        finished=finished,
        signal_number=signal_number,
        best_step=best,
        validation=dict(history.validation),
    )
