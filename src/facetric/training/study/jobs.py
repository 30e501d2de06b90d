"""What a worker of a study does: the search of one method, trial by trial, or one final run."""

from __future__ import annotations

import io
import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetric.embedder.embedding import remove_blocks
from facetric.runs import DivergedError, Run, TrainConfig, evaluate_run, first_difference, remove_states
from facetric.training.study.trials import Parameters, Trial, at_the_edge, best_trial, most_trials, read_trials, search
from facetric.training.study.workers import Interrupted, say

if TYPE_CHECKING:
    from facetric.training import RunResult
    from facetric.training.study.study import Study


def run_search(study: Study, n_jobs: int, name: str) -> str:
    """Search the hyper-parameters of one method, and sum up the result in a line."""
    space, path = study.space(name), study.trials_file(name)
    n_before = len(read_trials(path))
    start = time.perf_counter()
    trials = search(path, space, study.setting.n_trials, partial(_run_trial, study, n_jobs, name))
    best = best_trial(trials)
    n_new, edge = len(trials) - n_before, at_the_edge(best, space)
    spent = f"searched in {time.perf_counter() - start:.0f} s" if n_new else "already searched"
    note = f"; close to the end of its range: {', '.join(edge)}" if edge else ""
    return f"{spent}; best {100 * best.objective:.2f} on validation classes with {_shown(best.parameters)}{note}"


def run_final(study: Study, n_jobs: int, which: tuple[str, int]) -> str:
    """Train one seed on all training classes with the best hyper-parameters, score it on the test classes, sum up in a line."""
    name, seed = which
    folder = study.final_folder(name, seed)
    start = time.perf_counter()
    best = best_trial(read_trials(study.trials_file(name)))
    place = {"folder": str(folder.parent), "name": folder.name, "validate_every": 0}
    config = study.config(name, best.parameters, seed=seed, **place, **_threads(n_jobs))
    if Run(folder).was_killed_at_start():
        shutil.rmtree(folder)
    if folder.exists() and (difference := _difference(folder, config)):
        moved = _supersede(study, folder)
        say(f"{name}, seed {seed}: the earlier run is not this one ({difference}) and is kept in {moved}")
    if Run(folder).evaluation_file().is_file():
        remove_states(Run(folder).checkpoints)
        remove_blocks(Run(folder).blocks_folder())  # of a process that was killed just after it wrote the scores
        return "already done"
    try:
        _train(config)
        report = evaluate_run(
            folder, checkpoint="last", facility=False, before=seed == 0, use_cache=True
        ).report  # once per table
    except DivergedError:
        raise RuntimeError(
            f"{name}, seed {seed} has diverged with the hyper-parameters that its search found ({_shown(best.parameters)}): "
            "search longer with a higher --trials, or leave it out by naming the others with --method; what is finished is kept"
        ) from None
    remove_states(Run(folder).checkpoints)  # a finished run needs only its embedder
    assert report is not None
    assert report.nmi is not None
    return f"NMI {100 * report.nmi:.2f}, R@1 {100 * report.recall_at_k[1]:.2f} in {time.perf_counter() - start:.0f} s"


def validation_scores(config: TrainConfig) -> dict[str, float]:
    """Train a scratch run, or resume it if it was interrupted, and score its validation classes. Its folder is removed."""
    steps = config.run.steps
    config = config.model_copy(update={"run": config.run.model_copy(update={"validate_every": steps, "log_every": steps})})
    folder = _folder(config)
    if folder.exists() and _difference(folder, config):
        _remove_run(folder)
    result = _train(config)
    _remove_run(result.folder)
    return dict(result.validation[steps])


def _scores_or_zero(config: TrainConfig) -> dict[str, float]:
    """The scores of a trial; 0 for one that diverged, which is the worst."""
    try:
        return validation_scores(config)
    except DivergedError:
        say(f"{config.run.name}: this trial has diverged and counts as the worst")
        _remove_run(_folder(config))
        return {"recall_at_1": 0.0, "nmi": 0.0}


def _run_trial(study: Study, n_jobs: int, name: str, number: int, parameters: Parameters) -> Trial:
    start = time.perf_counter()
    scores = []
    for fold in range(study.setting.n_folds):
        place: dict[str, Any] = {"folder": str(study.folder / "search" / "running"), "name": f"{name}-{number}-{fold}"}
        if study.setting.trial_steps is not None:
            place["steps"] = study.setting.trial_steps
        config = study.config(name, {**parameters, "data.validation_seed": fold}, seed=0, **place, **_threads(n_jobs))
        scores.append(_scores_or_zero(config))
    objective = sum((found["recall_at_1"] + found["nmi"]) / 2 for found in scores) / len(scores)
    seconds = time.perf_counter() - start
    n_trials = most_trials(study.space(name), study.setting.n_trials)
    say(f"{name}, trial {number + 1} of {n_trials}: {100 * objective:.2f} with {_shown(parameters)} in {seconds:.0f} s")
    return Trial(parameters, objective, scores, seconds)


def _train(config: TrainConfig) -> RunResult:
    """Train a run, or resume it if its folder exists, without output."""
    from rich.console import Console

    from facetric.training import resume, train

    folder, quiet = _folder(config), Console(file=io.StringIO())
    result = resume(folder, console=quiet) if folder.exists() else train(config, console=quiet)
    if result.signal_number:
        raise Interrupted(result.signal_number)
    return result


def _difference(folder: Path, config: TrainConfig) -> str | None:
    """Why a folder does not hold this run: the first setting that differs. None if it does."""
    run = Run(folder)
    if not run.config_file.is_file():
        return f"it has no {run.config_file.name}"
    key = first_difference(config, run.config)
    return f"{key} differs" if key else None


def _remove_run(folder: Path) -> None:
    """The configuration first: what a kill leaves is no run, and is removed the next time."""
    Run(folder).config_file.unlink(missing_ok=True)
    shutil.rmtree(folder)


def _supersede(study: Study, folder: Path) -> Path:
    """Move a final run to superseded/, under a number that is free."""
    place = study.folder / "superseded"
    place.mkdir(exist_ok=True)
    number = 1
    while (target := place / f"{folder.name}-{number}").exists():
        number += 1
    return folder.rename(target)


def _folder(config: TrainConfig) -> Path:
    return Run.of(config).path


def _threads(n_jobs: int) -> dict[str, int]:
    return {"threads": 1} if n_jobs > 1 else {}


def _shown(parameters: Parameters) -> str:
    return ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in parameters.items())
