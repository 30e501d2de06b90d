"""One protocol for every loss: search on validation classes, train seeds on all training classes, score test classes once.

    folder/
      protocol.json             the settings that all runs share, and the search space of every method
      search/METHOD.json        every trial: hyper-parameters, scores on the validation classes, seconds
      runs/METHOD-seed0 …       the final runs: ordinary run folders, evaluated on the test classes
      superseded/               earlier final runs of a method for which more trials found better hyper-parameters
      study.json, table.md      what was chosen for every method, and the table

A study resumes where it was interrupted: finished trials and runs are not repeated, and no final run is ever deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from facetric.evaluation import Comparison, comparison_text
from facetric.files import remove_stale_parts, sealed, unsealed, write_atomically
from facetric.runs import TrainConfig, compare_runs, parse_config, real_paths, resolve_paths, set_key
from facetric.training.study.feasibility import batch_problem, training_labels
from facetric.training.study.jobs import run_final, run_search
from facetric.training.study.spaces import CLASS_RATIO, COMPARED_WITH_ALL, PER_IMAGE, Method, Range, Space
from facetric.training.study.trials import Parameters, at_the_edge, best_trial, middle, most_trials, read_trials, require_optuna
from facetric.training.study.workers import say, worker_pool


@dataclass(frozen=True)
class Setting:
    """What all methods of a study have in common."""

    tables: dict[str, dict[str, Any]]  # the configuration without its loss
    searched: Space  # searched for every method, beside its own keys
    tied: dict[str, str] = field(default_factory=dict)  # "table.key" → the searched key whose value it takes
    overrides: dict[str, Any] = field(default_factory=dict)  # "table.key" → the user's value, in every run
    n_trials: int = 16
    n_seeds: int = 5
    n_folds: int = 1  # sets of validation classes that every trial is scored on
    trial_steps: int | None = None  # training steps of a trial; as many as of a final run if None


@dataclass(frozen=True)
class Study:
    """Methods under one setting, in one folder."""

    folder: Path
    setting: Setting
    methods: dict[str, Method]
    left_out: dict[str, str] = field(default_factory=dict)  # method → why it cannot be trained; see `feasible`

    def feasible(self) -> Study:
        """The study without the batches that the dataset cannot fill, and the methods that need them.

        A ValueError if none remains.
        """
        left_out, methods, labels, own_validation = {}, {}, None, False
        for name, method in self.methods.items():
            config = self.config(name, middle(self.space(name)))
            if labels is None:
                labels, own_validation = training_labels(config.data, n_folds=self.setting.n_folds)
            searched = self.space(name).get(CLASS_RATIO)
            ratios = searched if isinstance(searched, tuple) else (config.batches.class_ratio,)
            composed = [config.batches.model_copy(update={"class_ratio": ratio}) for ratio in ratios]
            problems = dict(zip(ratios, (batch_problem(batches, labels) for batches in composed), strict=True))
            possible = [ratio for ratio, problem in problems.items() if problem is None]
            if not possible:
                left_out[name] = str(problems[ratios[0]])
            elif len(possible) < len(ratios):
                filled = tuple(ratio for ratio in possible if ratio is not None)
                methods[name] = replace(method, searched={**method.searched, CLASS_RATIO: filled})
            else:
                methods[name] = method
        if not methods:
            raise ValueError("no loss is left to study: " + "; ".join(f"{name}: {why}" for name, why in left_out.items()))
        setting = replace(self.setting, n_folds=1) if own_validation else self.setting  # all folds would be the same
        return replace(self, setting=setting, methods=methods, left_out={**self.left_out, **left_out})

    @property
    def n_runs(self) -> int:
        """Runs from the first trial to the last seed."""
        trials = sum(most_trials(self.space(name), self.setting.n_trials) for name in self.methods)
        return trials * self.setting.n_folds + len(self.methods) * self.setting.n_seeds

    def run(self, *, n_jobs: int = 1) -> Comparison:
        """Search, train, evaluate, tabulate: `n_jobs` runs at a time, each with one thread if there are several."""
        names = list(self.methods)
        if any(isinstance(where, Range) for name in names for where in self.space(name).values()):
            require_optuna()
        with self._owned():
            return self._run(names, n_jobs)

    def _run(self, names: list[str], n_jobs: int) -> Comparison:
        protocol = self._protocol()
        for name, problem in self.left_out.items():
            say(f"{name} is left out: {problem}")
        self.prepare()
        write_atomically(self.folder / "protocol.json", sealed(protocol))
        with worker_pool(n_jobs) as parallel_map:
            for name, summary in zip(names, parallel_map(partial(run_search, self, n_jobs), names), strict=True):
                say(f"{name}: {summary}")
            finals = [(name, seed) for seed in range(self.setting.n_seeds) for name in names]
            for (name, seed), summary in zip(finals, parallel_map(partial(run_final, self, n_jobs), finals), strict=True):
                say(f"{name}, seed {seed}: {summary}")
        comparison = self._comparison()
        self._write(comparison)
        return comparison

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """One process runs a study; a killed one releases its lock."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(
                f"{self.folder} is being run by another process: wait for it, or choose another --output"
            ) from None
        try:
            remove_stale_parts(self.folder, self.folder / "search")
            yield
        finally:
            lock.release()

    def space(self, name: str) -> Space:
        """Everything that is searched for a method, without what its own batches decide."""
        method = self.methods[name]
        own = {f"batches.{key}" for key in method.batches}
        return {key: where for key, where in {**self.setting.searched, **method.searched}.items() if key not in own}

    def trials_file(self, name: str) -> Path:
        return self.folder / "search" / f"{name}.json"

    def final_folder(self, name: str, seed: int) -> Path:
        return self.folder / "runs" / f"{name}-seed{seed}"

    def config(self, method_name: str, parameters: Parameters, **run: Any) -> TrainConfig:
        """The run of a method with these hyper-parameters; `run` sets keys of [run]."""
        method = self.methods[method_name]
        raw = {table: dict(values) for table, values in self.setting.tables.items()}
        raw["loss"] = {**method.loss, "options": dict(method.loss.get("options", {}))}
        for key, value in self.setting.overrides.items():
            set_key(raw, key.split("."), value)
        raw["batches"] = {key: value for key, value in {**raw.get("batches", {}), **method.batches}.items() if value is not None}
        raw["run"] = {**raw.get("run", {}), **run}
        tied = {key: parameters[other] for key, other in self.setting.tied.items()}
        for key, value in {**method.fixed, **parameters, **tied}.items():
            if key.endswith(PER_IMAGE):
                value = float(value) * _images_clustered(raw)  # noqa: PLW2901
            set_key(raw, key.removesuffix(PER_IMAGE).split("."), value)
        if "optimizer.warmup_steps" not in self.setting.overrides:
            warmup = raw.setdefault("optimizer", {}).get("warmup_steps", 0)
            raw["optimizer"]["warmup_steps"] = min(warmup, raw["run"]["steps"] // 10)
        return resolve_paths(parse_config(real_paths(raw), source=method_name))

    def prepare(self) -> None:
        """Refuse what could not begin; build the caches with all threads, before several runs ask for them at once."""
        from facetric.training.session import prepare_runs

        lengths: list[dict[str, int]] = [{}] if self.setting.trial_steps is None else [{}, {"steps": self.setting.trial_steps}]
        prepare_runs([self.config(name, middle(self.space(name)), **run) for name in self.methods for run in lengths])

    def _comparison(self) -> Comparison:
        """The table of the final runs, with a note for every method that is left out."""
        finals = [self.final_folder(name, seed) for name in self.methods for seed in range(self.setting.n_seeds)]
        ours = next((name for name in COMPARED_WITH_ALL if name in self.methods), None)
        comparison = compare_runs(finals, reference=None if ours is None else self.final_folder(ours, 0))
        notes = [f"{name} is left out: {problem}." for name, problem in self.left_out.items()]
        return replace(comparison, notes=(*comparison.notes, *notes))

    def _protocol(self) -> dict[str, Any]:
        """What decides the runs; refuses a folder whose runs were decided by something else."""
        setting = self.setting
        tables = real_paths(setting.tables)
        shared = {
            "tables": tables,
            "overrides": setting.overrides,
            "tied": setting.tied,
            "n_folds": setting.n_folds,
            "trial_steps": setting.trial_steps,
        }
        own = {name: {"method": asdict(method), "space": _plain(self.space(name))} for name, method in self.methods.items()}
        now: dict[str, Any] = json.loads(json.dumps({"setting": shared, "methods": own}))
        path = self.folder / "protocol.json"
        if path.is_file():
            try:
                before = unsealed(path.read_bytes(), required=False)
                pairs = [(before["setting"], now["setting"])]
                pairs += [(before["methods"][name], now["methods"][name]) for name in own if name in before["methods"]]
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path} is damaged ({error}): restore it, or choose another folder with --output") from None
            for there, here in pairs:
                for key, was, wanted in _differences(there, here):
                    raise ValueError(
                        f"the study in {self.folder} was begun with another {key}: {was} there, {wanted} here; runs of different "
                        "settings are not mixed: repeat the settings of the study, or choose another folder with --output"
                    )
            now["methods"] = {**before["methods"], **now["methods"]}
        return now

    def _write(self, comparison: Comparison) -> None:
        record: dict[str, Any] = {name: {"left_out": problem} for name, problem in self.left_out.items()}
        for name in self.methods:
            trials = read_trials(self.trials_file(name))
            best = best_trial(trials)
            record[name] = {
                "title": self.methods[name].title,
                "chosen": best.parameters,
                "validation": best.objective,
                "n_trials": len(trials),
                "at_the_edge": at_the_edge(best, self.space(name)),
                "search_seconds": sum(trial.seconds for trial in trials),
            }
        write_atomically(self.folder / "study.json", sealed(record))
        write_atomically(self.folder / "table.md", (comparison_text(comparison, "markdown") + "\n").encode())


def _images_clustered(tables: dict[str, dict[str, Any]]) -> int:
    """In one clustering: those of a batch, or of a subset of it."""
    size, loss = int(tables["batches"]["size"]), tables["loss"]
    return int(loss.get("subset_size") or size // 2) if loss.get("n_subsets") else size


def _plain(space: Space) -> dict[str, Any]:
    return {key: asdict(where) if isinstance(where, Range) else list(where) for key, where in space.items()}


def _differences(before: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two nested records differ, and the two values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from _differences(before.get(key), now.get(key), f"{place}.{key}" if place else key)
    elif before != now:
        yield place.removeprefix("tables.").removeprefix("overrides."), before, now
