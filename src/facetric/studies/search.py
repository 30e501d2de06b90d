"""The search for hyper-parameters: Optuna's TPE, one readable file per method, continued where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from facetric.files import write_atomically
from facetric.studies.spaces import Range, Space, Value

Parameters = dict[str, Value]

_N_RANDOM = 6  # trials before Optuna looks at the earlier ones


@dataclass(frozen=True)
class Trial:
    """One choice of hyper-parameters and what came of it on the validation classes."""

    parameters: Parameters
    objective: float  # the mean of Recall@1 and NMI after the last step, over all choices of validation classes
    scores: list[dict[str, float]]  # one per choice of validation classes
    seconds: float


def search(path: Path, space: Space, n_trials: int, run: Callable[[int, Parameters], Trial], *, seed: int = 0) -> list[Trial]:
    """`n_trials` trials; those that `path` already holds are not repeated. A space of so few choices is tried out in full.

    The next parameters depend on the seed, the number of the trial and the trials before it alone, so a search that was
    interrupted ends as if it had not been.
    """
    trials = read_trials(path)
    grid = _grid(space)
    for number in range(len(trials), n_trials if grid is None else min(n_trials, len(grid))):
        parameters = _suggested(space, trials, seed * 10_000 + number) if grid is None or len(grid) > n_trials else grid[number]
        trials.append(run(number, parameters))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps([asdict(trial) for trial in trials], indent=1) + "\n").encode())
    return trials


def _grid(space: Space) -> list[Parameters] | None:
    """Every combination, where there are choices only."""
    choices = [where for where in space.values() if isinstance(where, tuple)]
    if len(choices) < len(space):
        return None
    return [dict(zip(space, values, strict=True)) for values in product(*choices)]


def _suggested(space: Space, trials: list[Trial], seed: int) -> Parameters:
    """What Optuna would try next."""
    optuna = _optuna()
    distributions = {key: _distribution(optuna, where) for key, where in space.items()}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_N_RANDOM))
    for trial in trials:
        study.add_trial(optuna.trial.create_trial(params=trial.parameters, distributions=distributions, value=trial.objective))
    found: Parameters = study.ask(distributions).params
    return found


def read_trials(path: Path) -> list[Trial]:
    """The trials of a file, none if it is not there."""
    if not path.is_file():
        return []
    return [Trial(**raw) for raw in json.loads(path.read_text())]


def best_trial(trials: list[Trial]) -> Trial:
    """The one with the highest objective, the first among equals."""
    return max(trials, key=lambda trial: trial.objective)


def at_the_edge(trial: Trial, space: Space) -> list[str]:
    """The keys whose best value lies within a tenth of the range's end (on the logarithmic scale): look further there."""
    from math import log

    found = []
    for key, where in space.items():
        if isinstance(where, Range):
            place = log(float(trial.parameters[key]) / where.low) / log(where.high / where.low)
            if not 0.1 <= place <= 0.9:
                found.append(key)
    return found


def _distribution(optuna: Any, where: Range | tuple[Value, ...]) -> Any:
    if isinstance(where, Range):
        return optuna.distributions.FloatDistribution(where.low, where.high, log=True)
    return optuna.distributions.CategoricalDistribution(where)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("the search needs Optuna, which is not installed: pip install 'facetric[reproduce]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
