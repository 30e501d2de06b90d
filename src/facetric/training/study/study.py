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
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from facetric.evaluation import Comparison
from facetric.files import checksummed, read_checksummed, remove_stale_parts, write_atomically
from facetric.runs import DivergedError, Run, TrainConfig, compare_runs, parse_config, real_paths, resolve_paths, set_key
from facetric.training.session import prepare_runs
from facetric.training.study.spaces import COMPARED_WITH_ALL, PER_IMAGE, Method, Parameters, Range, Space
from facetric.training.study.trials import (
    Search,
    Trial,
    difference_from,
    in_processes,
    middle,
    remove_run,
    require_optuna,
    say,
    shown,
    train_or_resume,
    validation_scores,
)


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
    test_classes: str = ""  # their number and fingerprint


@dataclass(frozen=True)
class Study:
    """Methods under one setting, in one folder."""

    folder: Path
    setting: Setting
    methods: dict[str, Method]
    left_out: dict[str, str] = field(default_factory=dict)  # method → why it cannot be trained; see `reproduction`

    @property
    def n_runs(self) -> int:
        """Runs from the first trial to the last seed."""
        return (
            sum(self.search(name).n_trials for name in self.methods) * self.setting.n_folds
            + len(self.methods) * self.setting.n_seeds
        )

    def run(self, *, n_processes: int = 1) -> Comparison:
        """Search, train, evaluate, tabulate: `n_processes` runs at a time, each with one thread if there are several."""
        if any(isinstance(where, Range) for name in self.methods for where in self.space(name).values()):
            require_optuna()
        setting, names = self.setting, ", ".join(self.methods)
        say(
            f"{self.folder}: {names}; trials {setting.n_trials}, folds {setting.n_folds}, seeds {setting.n_seeds}: {self.n_runs} "
            f"runs in all; test classes: {setting.test_classes}"
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=0):  # a killed process releases it
                return self._run(n_processes)
        except Timeout:
            raise RuntimeError(
                f"{self.folder} is being run by another process: wait for it, or choose another --output"
            ) from None

    def _run(self, n_processes: int) -> Comparison:
        remove_stale_parts(self.folder, self.folder / "search")
        protocol = self._protocol()
        for name, problem in self.left_out.items():
            say(f"{name} is left out: {problem}")
        self.prepare()
        write_atomically(self.folder / "protocol.json", checksummed(protocol))
        threads = 1 if n_processes > 1 else None
        finals = [(name, seed, threads) for seed in range(self.setting.n_seeds) for name in self.methods]
        in_processes(self._search, [(name, threads) for name in self.methods], n_processes)
        in_processes(self._final, finals, n_processes)
        comparison = self._comparison()
        self._write(comparison)
        return comparison

    def space(self, name: str) -> Space:
        """Everything that is searched for a method, without what its own batches decide."""
        method = self.methods[name]
        own = {f"batches.{key}" for key in method.batches}
        return {key: where for key, where in {**self.setting.searched, **method.searched}.items() if key not in own}

    def search(self, name: str) -> Search:
        return Search(self.folder / "search" / f"{name}.json", self.space(name), self.setting.n_trials)

    def final_folder(self, name: str, seed: int) -> Path:
        return self.folder / "runs" / f"{name}-seed{seed}"

    def config(self, method_name: str, parameters: Parameters, **run: Any) -> TrainConfig:
        """The run of a method with these hyper-parameters; `run` sets keys of [run] that are not None."""
        method = self.methods[method_name]
        raw = {table: dict(values) for table, values in self.setting.tables.items()}
        raw["loss"] = {**method.loss, "options": dict(method.loss.get("options", {}))}
        for key, value in self.setting.overrides.items():
            set_key(raw, key.split("."), value)
        raw["batches"] = {key: value for key, value in {**raw.get("batches", {}), **method.batches}.items() if value is not None}
        raw["run"] = {**raw.get("run", {}), **{key: value for key, value in run.items() if value is not None}}
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
        lengths: list[dict[str, int]] = [{}] if self.setting.trial_steps is None else [{}, {"steps": self.setting.trial_steps}]
        prepare_runs([self.config(name, middle(self.space(name)), **run) for name in self.methods for run in lengths])

    def _search(self, name: str, threads: int | None) -> None:
        """Search the hyper-parameters of one method, trial by trial."""
        search, start = self.search(name), time.perf_counter()
        n_before = len(search.trials)
        n_trials, best, edge = len(search.run(partial(self._trial, name, threads))), search.best, search.at_the_edge
        spent = f"searched in {time.perf_counter() - start:.0f} s" if n_trials > n_before else "already searched"
        note = f"; close to the end of its range: {', '.join(edge)}" if edge else ""
        say(f"{name}: {spent}; best {100 * best.objective:.2f} on validation classes with {shown(best.parameters)}{note}")

    def _trial(self, name: str, threads: int | None, number: int, parameters: Parameters) -> Trial:
        """Train and score every fold; one that diverged scores 0, which is the worst."""
        start, scores = time.perf_counter(), []
        steps = {} if self.setting.trial_steps is None else {"steps": self.setting.trial_steps}
        place = {"folder": str(self.folder / "search" / "running"), "threads": threads, **steps}
        for fold in range(self.setting.n_folds):
            settings = {**parameters, "data.validation_seed": fold}
            config = self.config(name, settings, seed=0, name=f"{name}-{number}-{fold}", **place)
            try:
                scores.append(validation_scores(config))
            except DivergedError:
                say(f"{config.run.name}: this trial has diverged and counts as the worst")
                remove_run(Run.of(config))
                scores.append({"recall_at_1": 0.0, "nmi": 0.0})
        objective = sum((found["recall_at_1"] + found["nmi"]) / 2 for found in scores) / len(scores)
        seconds, n_trials = time.perf_counter() - start, self.search(name).n_trials
        say(f"{name}, trial {number + 1} of {n_trials}: {100 * objective:.2f} with {shown(parameters)} in {seconds:.0f} s")
        return Trial(parameters, objective, scores, seconds)

    def _final(self, name: str, seed: int, threads: int | None) -> None:
        """Train one seed on all training classes with the best hyper-parameters, and score it on the test classes."""
        folder, start = self.final_folder(name, seed), time.perf_counter()
        run, best = Run(folder), self.search(name).best
        place = {"folder": str(folder.parent), "name": folder.name, "validate_every": 0, "threads": threads}
        config = self.config(name, best.parameters, seed=seed, **place)
        if run.was_killed_at_start():
            shutil.rmtree(folder)
        if folder.exists() and (difference := difference_from(run, config)):
            moved = self._supersede(folder)
            say(f"{name}, seed {seed}: the earlier run is not this one ({difference}) and is kept in {moved}")
        if run.evaluation_file().is_file():
            said = "already done"
        else:
            try:
                train_or_resume(config)
                report = Run(folder).evaluate(checkpoint="last", facility=False, baselines=seed == 0)
            except DivergedError:
                raise RuntimeError(
                    f"{name}, seed {seed} has diverged with the hyper-parameters that its search found "
                    f"({shown(best.parameters)}): search longer with a higher --trials, or leave it out by naming the others "
                    "with --method; what is finished is kept"
                ) from None
            assert report.nmi is not None
            spent = time.perf_counter() - start
            said = f"NMI {100 * report.nmi:.2f}, R@1 {100 * report.recall_at_k[1]:.2f} in {spent:.0f} s"
        run.remove_states()  # a finished run needs only its network
        say(f"{name}, seed {seed}: {said}")

    def _supersede(self, folder: Path) -> Path:
        """Move a final run to superseded/, under a number that is free."""
        place, number = self.folder / "superseded", 1
        place.mkdir(exist_ok=True)
        while (target := place / f"{folder.name}-{number}").exists():
            number += 1
        return folder.rename(target)

    def _comparison(self) -> Comparison:
        """The table of the final runs, with a note for every method that is left out."""
        finals = [self.final_folder(name, seed) for name in self.methods for seed in range(self.setting.n_seeds)]
        ours = next((name for name in COMPARED_WITH_ALL if name in self.methods), None)
        comparison = compare_runs(finals, reference=None if ours is None else self.final_folder(ours, 0))
        notes = [f"{name} is left out: {problem}." for name, problem in self.left_out.items()]
        return replace(comparison, notes=(*comparison.notes, *notes))

    def _protocol(self) -> dict[str, Any]:
        """What decides the runs; refuses a folder whose runs were decided by something else."""
        shared = asdict(replace(self.setting, tables=real_paths(self.setting.tables)))
        shared = {key: value for key, value in shared.items() if key not in {"n_trials", "n_seeds"}}  # more extend a study
        own = {name: {"method": asdict(method)} for name, method in self.methods.items()}
        now: dict[str, Any] = json.loads(json.dumps({"setting": shared, "methods": own}))
        path = self.folder / "protocol.json"
        if not path.is_file():
            return now
        try:
            before = read_checksummed(path.read_bytes())
            there = {"setting": before["setting"], **{name: before["methods"][name] for name in own if name in before["methods"]}}
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is damaged ({error}): restore it, or choose another folder with --output") from None
        here = {"setting": now["setting"], **now["methods"]}
        for part, record in there.items():
            for key, was, wanted in _differences(record, here[part]):
                raise ValueError(
                    f"the study in {self.folder} was begun with another {key}: {was} there, {wanted} here; runs of different "
                    "settings are not mixed: repeat the settings of the study, or choose another folder with --output"
                )
        return {**now, "methods": {**before["methods"], **now["methods"]}}

    def _write(self, comparison: Comparison) -> None:
        record: dict[str, Any] = {name: {"left_out": problem} for name, problem in self.left_out.items()}
        for name in self.methods:
            search = self.search(name)
            record[name] = {
                "title": self.methods[name].title,
                "chosen": search.best.parameters,
                "validation": search.best.objective,
                "n_trials": len(search.trials),
                "at_the_edge": search.at_the_edge,
                "search_seconds": sum(trial.seconds for trial in search.trials),
            }
        write_atomically(self.folder / "study.json", checksummed(record))
        write_atomically(self.folder / "table.md", (comparison.text("markdown") + "\n").encode())


def _images_clustered(tables: dict[str, dict[str, Any]]) -> int:
    """In one clustering: those of a batch, or of a subset of it."""
    size, loss = int(tables["batches"]["size"]), tables["loss"]
    return int(loss.get("subset_size") or size // 2) if loss.get("n_subsets") else size


def _differences(before: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two nested records differ, and the two values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from _differences(before.get(key), now.get(key), f"{place}.{key}" if place else key)
    elif before != now:
        yield place.removeprefix("tables.").removeprefix("overrides."), before, now
