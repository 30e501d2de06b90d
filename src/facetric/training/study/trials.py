"""The trials of a study: which hyper-parameters are tried, and runs that are trained without output, several at a time.

The search: the middle of every range, every quarter of it once, then Optuna's TPE; a shuffled grid for choices. Resumable.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import product
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from rich.console import Console
from tqdm.auto import tqdm

from facetric.files import checksummed, read_checksummed, write_atomically
from facetric.machine import prepare_process
from facetric.runs import Run, TrainConfig, first_difference
from facetric.training.loop import RunResult, resume, train
from facetric.training.study.spaces import Parameters, Range, Space, Value

_N_QUARTERS = 4  # trials that fill the space evenly, after the middle and before TPE; random ones can miss half of a range


@dataclass(frozen=True)
class Trial:
    """One set of hyper-parameters and its scores on the validation classes."""

    parameters: Parameters
    objective: float  # mean of Recall@1 and NMI after the last step, averaged over the folds
    scores: list[dict[str, float]]  # one per fold
    seconds: float


class Search:
    """The trials of a space of hyper-parameters, in one file: up to `n_trials`, or all combinations of choices if they are fewer.

    Which parameters come next depends on the seed and on the earlier trials, never on `n_trials`: a search that is interrupted,
    or extended later, makes the same trials as one that runs through.
    """

    def __init__(self, path: Path, space: Space, n_trials: int, *, seed: int = 0) -> None:
        self.path, self.space, self.n_trials, self.seed = path, space, n_trials, seed
        self._grid: list[Parameters] | None = None
        choices = [where for where in space.values() if isinstance(where, tuple)]
        if len(choices) == len(space):
            grid = [dict(zip(space, values, strict=True)) for values in product(*choices)]
            self._grid = [grid[i] for i in np.random.default_rng(seed).permutation(len(grid))]
            self.n_trials = min(n_trials, len(grid))

    @property
    def trials(self) -> list[Trial]:
        """Those in the file; none if there is no file."""
        if not self.path.is_file():
            return []
        try:
            return [Trial(**raw) for raw in read_checksummed(self.path.read_bytes())["trials"]]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self.path} is damaged ({error}): restore it, or remove it to search again") from None

    @property
    def best(self) -> Trial:
        """The trial with the highest objective, the first among equals."""
        return max(self.trials, key=lambda trial: trial.objective)

    @property
    def at_the_edge(self) -> list[str]:
        """The keys whose best value is within a tenth of an end of its range, on the log scale: a wider one may be better."""
        best, ranges = self.best.parameters, {key: where for key, where in self.space.items() if isinstance(where, Range)}
        places = {key: log(float(best[key]) / where.low) / log(where.high / where.low) for key, where in ranges.items()}
        return [key for key, place in places.items() if not 0.1 <= place <= 0.9]

    def run(self, trial: Callable[[int, Parameters], Trial]) -> list[Trial]:
        """Make the trials that are not in the file yet, each written as it ends."""
        trials, first = self.trials, [middle(self.space), *_one_in_each_quarter(self.space, self.seed)]
        for number in range(len(trials), self.n_trials):
            if self._grid is not None:
                parameters = next(point for point in self._grid if point not in [done.parameters for done in trials])
            else:
                parameters = first[number] if number < len(first) else self._suggested(trials)
            trials.append(trial(number, parameters))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, checksummed({"trials": [asdict(done) for done in trials]}))
        return trials

    def _suggested(self, trials: list[Trial]) -> Parameters:
        """What TPE tries next."""
        optuna = require_optuna()
        kinds, sampler = (
            optuna.distributions,
            optuna.samplers.TPESampler(seed=self.seed * 10_000 + len(trials), n_startup_trials=1),
        )
        distributions = {
            key: kinds.FloatDistribution(of.low, of.high, log=True)
            if isinstance(of, Range)
            else kinds.CategoricalDistribution(of)
            for key, of in self.space.items()
        }
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in trials:
            study.add_trial(
                optuna.trial.create_trial(params=trial.parameters, distributions=distributions, value=trial.objective)
            )
        found: Parameters = study.ask(distributions).params
        return found


def middle(space: Space) -> Parameters:
    """Of every range on the log scale, and the first of every list: what a search begins with."""
    return {key: _at(where, 0.5) if isinstance(where, Range) else where[0] for key, where in space.items()}


def _one_in_each_quarter(space: Space, seed: int) -> list[Parameters]:
    """A Latin hypercube: every quarter of every range or list once, combined at random."""
    rng = np.random.default_rng(seed)
    places = {key: (rng.permutation(_N_QUARTERS) + 0.5) / _N_QUARTERS for key in space}
    return [{key: _at(where, float(places[key][i])) for key, where in space.items()} for i in range(_N_QUARTERS)]


def _at(where: Range | tuple[Value, ...], place: float) -> Value:
    """A value by its place in [0, 1): on the log scale of a range, or in a list."""
    return where.low ** (1 - place) * where.high**place if isinstance(where, Range) else where[int(place * len(where))]


def require_optuna() -> Any:
    """Optuna, or a ValueError that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise ValueError("the search needs Optuna, which is not installed: pip install 'facetric[reproduce]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def shown(parameters: Parameters) -> str:
    return ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in parameters.items())


def say(line: str) -> None:
    """A message on stderr, from any process."""
    print(line, file=sys.stderr, flush=True)


def in_processes(work: Callable[..., None], tasks: Iterable[tuple[Any, ...]], n_processes: int) -> None:
    """Do all tasks, in this process or in several of one thread each, which end with this one."""
    if n_processes == 1:
        for task in tasks:
            work(*task)
        return
    try:
        with parallel_config("loky", inner_max_num_threads=1, initializer=_start_worker, initargs=(os.getpid(),)):
            Parallel(n_processes, batch_size=1)(delayed(work)(*task) for task in tasks)
    except BrokenProcessPool:
        raise RuntimeError(
            "a process of the study was killed, most likely for lack of memory: start the same command again with fewer "
            "--jobs; finished trials and runs are kept"
        ) from None


def _start_worker(parent: int) -> None:
    """Outside training, Ctrl-C is left to the parent. Whatever ends that ends this process; its run has a checkpoint."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_process()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a worker that is stopped would leave behind
    threading.Thread(target=end_with_parent, daemon=True).start()


def validation_scores(config: TrainConfig) -> dict[str, float]:
    """Train a scratch run, or resume it if it was interrupted, and score its validation classes. Its folder is removed."""
    steps, run = config.run.steps, Run.of(config)
    config = config.model_copy(update={"run": config.run.model_copy(update={"validate_every": steps, "log_every": steps})})
    if run.path.exists() and difference_from(run, config):
        remove_run(run)
    scores = train_or_resume(config).validation[steps]
    remove_run(run)
    return dict(scores)


def train_or_resume(config: TrainConfig) -> RunResult:
    """Train a run, or resume it if its folder exists, without output."""
    folder, quiet = Run.of(config).path, Console(file=io.StringIO())
    result = resume(folder, console=quiet) if folder.exists() else train(config, console=quiet)
    if result.signal_number:
        raise KeyboardInterrupt(result.signal_number)  # what was trained has a checkpoint
    return result


def difference_from(run: Run, config: TrainConfig) -> str | None:
    """Why a folder does not hold this run: the first setting that differs. None if it does."""
    if not run.config_file.is_file():
        return f"it has no {run.config_file.name}"
    key = first_difference(config, run.config)
    return f"{key} differs" if key else None


def remove_run(run: Run) -> None:
    """The configuration first: what a kill leaves is no run, and is removed the next time."""
    run.config_file.unlink(missing_ok=True)
    shutil.rmtree(run.path)
