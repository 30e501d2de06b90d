"""One protocol for every loss: search on validation classes, seeds on the whole training half, the test classes once, at the end.

    folder/
      protocol.json             what all runs have in common, and what is searched for each method
      search/METHOD.json        every trial: parameters, scores on the validation classes, seconds
      runs/METHOD-seed0 …       the final runs, ordinary run folders, evaluated on the test classes
      table.md, study.json      what came of it, and all that decided it

Whatever is there is not done again: a study that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from facetric.config.config import TrainConfig, first_difference
from facetric.config.config_file import parse_config, read_config, set_key
from facetric.evaluation.tables import Comparison, comparison_text
from facetric.files import write_atomically
from facetric.machine import prepare_process
from facetric.runs import compare_runs, evaluate_run
from facetric.studies.search import Parameters, Trial, at_the_edge, best_trial, read_trials, search
from facetric.studies.spaces import Method, Range, Space


def say(line: str) -> None:
    """One line for the user; workers in processes of their own say theirs too."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Setting:
    """What all methods of a study have in common."""

    tables: dict[str, dict[str, Any]]  # the configuration, but for the loss
    searched: Space  # searched for every method, beside its own keys
    tied: dict[str, str] = field(default_factory=dict)  # "table.key" → the searched key whose value it takes
    n_trials: int = 16
    n_seeds: int = 5
    n_folds: int = 1  # choices of validation classes that a trial is scored on


@dataclass(frozen=True)
class Study:
    """Methods under one setting, in one folder."""

    folder: Path
    setting: Setting
    methods: dict[str, Method]

    def run(self, *, n_jobs: int = 1) -> Comparison:
        """Search, train, evaluate, tabulate. `n_jobs` runs at a time, each with one thread of torch when there are several."""
        names = list(self.methods)
        self._keep_protocol()
        self.prepare()
        with _pool(n_jobs) as do:
            for name, words in zip(names, do(partial(_searched, self, n_jobs), names), strict=True):
                say(f"{name}: {words}")
            finals = [(name, seed) for seed in range(self.setting.n_seeds) for name in names]
            for (name, seed), words in zip(finals, do(partial(_final, self, n_jobs), finals), strict=True):
                say(f"{name}, seed {seed}: {words}")
        comparison = self.comparison()
        self._write(comparison)
        return comparison

    def comparison(self) -> Comparison:
        """The table of the runs that are evaluated."""
        return compare_runs([self.final_folder(name, seed) for name in self.methods for seed in range(self.setting.n_seeds)])

    def space(self, name: str) -> Space:
        """All that is searched for a method."""
        return {**self.setting.searched, **self.methods[name].searched}

    def trials_file(self, name: str) -> Path:
        return self.folder / "search" / f"{name}.json"

    def final_folder(self, name: str, seed: int) -> Path:
        return self.folder / "runs" / f"{name}-seed{seed}"

    def config(self, method_name: str, parameters: Parameters, **run: Any) -> TrainConfig:
        """The run of a method with these hyper-parameters; `run` are keys of its [run]."""
        method = self.methods[method_name]
        raw = {table: dict(values) for table, values in self.setting.tables.items()}
        raw["loss"] = {**method.loss, "options": dict(method.loss.get("options", {}))}
        raw["batches"] = {key: value for key, value in {**raw.get("batches", {}), **method.batches}.items() if value is not None}
        raw["run"] = {**raw.get("run", {}), **run}
        tied = {key: parameters[other] for key, other in self.setting.tied.items()}
        for key, value in {**method.fixed, **parameters, **tied}.items():
            set_key(raw, key.split("."), value)
        warmup = raw.get("optimizer", {}).get("warmup_steps", 0)
        raw.setdefault("optimizer", {})["warmup_steps"] = min(warmup, raw["run"]["steps"] // 10)
        return parse_config(raw, source=f"{method_name} in the study {self.folder}")

    def prepare(self) -> None:
        """Caches are built here, with all threads, before several runs ask for them at once."""
        from facetric.training.session import prepare_caches

        name = next(iter(self.methods))  # which method, and with which values, makes no difference to the caches
        anything = {key: where.low if isinstance(where, Range) else where[0] for key, where in self.space(name).items()}
        prepare_caches(self.config(name, anything, steps=10))

    def _keep_protocol(self) -> None:
        """Write down what decides the runs; refuse a folder whose runs were decided by something else."""
        shared = {"tables": self.setting.tables, "tied": self.setting.tied, "n_folds": self.setting.n_folds}
        own = {name: {"method": asdict(method), "space": _plain(self.space(name))} for name, method in self.methods.items()}
        now = json.loads(json.dumps({"setting": shared, "methods": own}))
        path = self.folder / "protocol.json"
        if path.is_file():
            before = json.loads(path.read_text())
            changed = [key for key in shared if before["setting"][key] != now["setting"][key]]
            changed += [name for name in own if before["methods"].get(name, now["methods"][name]) != now["methods"][name]]
            if changed:
                raise ValueError(
                    f"the study in {self.folder} was begun with other settings ({', '.join(changed)}), and its runs cannot be "
                    "mixed with these: pass another folder, or remove it"
                )
            now["methods"] = {**before["methods"], **now["methods"]}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(now, indent=1) + "\n").encode())

    def _write(self, comparison: Comparison) -> None:
        chosen = {}
        for name in self.methods:
            trials = read_trials(self.trials_file(name))
            best = best_trial(trials)
            chosen[name] = {
                "title": self.methods[name].title,
                "chosen": best.parameters,
                "validation": best.objective,
                "n_trials": len(trials),
                "at_the_edge": at_the_edge(best, self.space(name)),
                "search_seconds": sum(trial.seconds for trial in trials),
            }
        write_atomically(self.folder / "study.json", (json.dumps(chosen, indent=1) + "\n").encode())
        write_atomically(self.folder / "table.md", (comparison_text(comparison, "markdown") + "\n").encode())


def _searched(study: Study, n_jobs: int, name: str) -> str:
    """The search of one method; gives what it found, in words."""
    space, path = study.space(name), study.trials_file(name)
    n_before = len(read_trials(path))
    start = time.perf_counter()
    trials = search(path, space, study.setting.n_trials, partial(_trial, study, n_jobs, name))
    best = best_trial(trials)
    edge = at_the_edge(best, space)
    note = f"; near the end of its range: {', '.join(edge)}" if edge else ""
    spent = (
        f"{len(trials) - n_before} trials in {time.perf_counter() - start:.0f} s" if n_before < len(trials) else "searched before"
    )
    return f"{spent}; best {100 * best.objective:.2f} on validation classes with {_words(best.parameters)}{note}"


def _trial(study: Study, n_jobs: int, name: str, number: int, parameters: Parameters) -> Trial:
    _end_with_parent()
    start = time.perf_counter()
    scores = []
    for fold in range(study.setting.n_folds):
        place = {"folder": str(study.folder / "search" / "running"), "name": f"{name}-{number}-{fold}"}
        config = study.config(name, {**parameters, "data.validation_seed": fold}, seed=0, **place, **_threads(n_jobs))
        scores.append(validation_scores(config))
    objective = sum((found["recall_at_1"] + found["nmi"]) / 2 for found in scores) / len(scores)
    seconds = time.perf_counter() - start
    say(f"{name}, trial {number + 1} of {study.setting.n_trials}: {100 * objective:.2f} ({_words(parameters)}; {seconds:.0f} s)")
    return Trial(parameters, objective, scores, seconds)


def validation_scores(config: TrainConfig) -> dict[str, float]:
    """Train, or go on with, a run that is only needed for its scores on the validation classes; its folder is removed."""
    steps = config.run.steps
    config = config.model_copy(update={"run": config.run.model_copy(update={"validate_every": steps, "log_every": steps})})
    result = _train(config)
    shutil.rmtree(result.folder)
    return dict(result.validation[steps])


def _final(study: Study, n_jobs: int, which: tuple[str, int]) -> str:
    """Train on the whole training half with the chosen parameters, and evaluate on the test classes."""
    _end_with_parent()
    name, seed = which
    folder = study.final_folder(name, seed)
    start = time.perf_counter()
    place = {"folder": str(folder.parent), "name": folder.name, "validate_every": 0}
    config = study.config(
        name, best_trial(read_trials(study.trials_file(name))).parameters, seed=seed, **place, **_threads(n_jobs)
    )
    kept = folder / "config.toml"
    if kept.is_file() and first_difference(config, read_config(kept)):  # more trials have found something better since
        shutil.rmtree(folder)
    if (folder / "evaluation.json").is_file():
        return "done before"
    _train(config)
    report = evaluate_run(folder, checkpoint="last", facility=False, use_cache=True).report
    for state in (folder / "checkpoints").glob("state_*.pt"):  # the run is finished: only its embedder is kept
        state.unlink()
    assert report is not None
    assert report.nmi is not None
    return f"NMI {100 * report.nmi:.2f}, R@1 {100 * report.recall_at_k[1]:.2f} in {time.perf_counter() - start:.0f} s"


def _train(config: TrainConfig) -> Any:
    """A new run, or the rest of one that was interrupted; silent."""
    from rich.console import Console

    from facetric.training import resume, train

    folder = Path(config.run.folder) / config.run.name
    if folder.exists() and not (folder / "config.toml").is_file():  # killed while it was being made
        shutil.rmtree(folder)
    quiet = Console(file=io.StringIO())
    result = resume(folder, console=quiet) if folder.exists() else train(config, console=quiet)
    if result.signal_number:
        raise KeyboardInterrupt
    return result


def _threads(n_jobs: int) -> dict[str, int]:
    return {"threads": 1} if n_jobs > 1 else {}


class _pool:
    """`map` over processes of their own, in order as results come; in this process when one job is asked for."""

    def __init__(self, n_jobs: int) -> None:
        self._pool = ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn"), initializer=one_thread) if n_jobs > 1 else None

    def __enter__(self) -> Callable[..., Iterable[Any]]:
        return map if self._pool is None else self._pool.map

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose study was killed begins nothing new: it would be in the way of the study that goes on."""
    parent = parent_process()
    if parent is not None and not parent.is_alive():
        sys.exit(1)


def one_thread() -> None:
    """For a worker: two processes with two threads each on two cores wait for each other most of the time."""
    prepare_process()
    import numba
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    numba.set_num_threads(1)
    torch.set_num_threads(1)
    threadpool_limits(1)


def _plain(space: Space) -> dict[str, Any]:
    return {key: asdict(where) if isinstance(where, Range) else list(where) for key, where in space.items()}


def _words(parameters: Parameters) -> str:
    return ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in parameters.items())
