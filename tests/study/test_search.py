"""The search: resumable, extensible, and every combination of a grid once."""

import pytest

from facetric.training.study.spaces import Range
from facetric.training.study.trials import Search, Trial

SPACES = {"ranges": {"x": Range(0.01, 100.0), "kind": ("a", "b")}, "choices": {"x": (1, 2, 3, 4), "kind": ("a", "b", "c")}}


def run(number, parameters):
    bonus = {"a": 0.0, "b": 0.1, "c": 0.05}[parameters["kind"]]
    return Trial(parameters, 1 / (1 + abs(parameters["x"] - 3.0)) + bonus, [], 0.0)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("n_first", [1, 5, 11])
def test_a_search_that_is_interrupted_or_extended_makes_the_same_trials(tmp_path, space, n_first):
    whole = Search(tmp_path / "whole.json", space, 12).run(run)
    assert len(whole) == 12
    Search(tmp_path / "parts.json", space, n_first).run(run)
    assert Search(tmp_path / "parts.json", space, 12).run(run) == whole


def test_a_range_is_searched_where_it_is_best(tmp_path):
    search = Search(tmp_path / "trials.json", SPACES["ranges"], 12)
    assert len({trial.parameters["x"] for trial in search.run(run)}) == 12
    assert abs(search.best.parameters["x"] - 3.0) < 5.0


def test_a_search_begins_in_the_middle_of_every_range_and_with_the_first_of_every_list(tmp_path):
    [first] = Search(tmp_path / "trials.json", SPACES["ranges"], 1).run(run)
    assert first.parameters == {"x": pytest.approx(1.0), "kind": "a"}


@pytest.mark.parametrize("seed", range(5))
def test_the_next_four_trials_are_one_in_each_quarter_of_every_range_and_list(tmp_path, seed):
    space = {"x": Range(0.01, 100.0), "y": Range(1.0, 16.0), "kind": ("a", "b", "c")}
    trials = Search(tmp_path / "trials.json", space, 5, seed=seed).run(run)[1:]
    assert sorted(trial.parameters["x"] for trial in trials) == pytest.approx([10**-1.5, 10**-0.5, 10**0.5, 10**1.5])
    assert sorted(trial.parameters["y"] for trial in trials) == pytest.approx([2**0.5, 2**1.5, 2**2.5, 2**3.5])
    assert sorted(trial.parameters["kind"] for trial in trials) == ["a", "b", "b", "c"]


@pytest.mark.parametrize("n_trials", [3, 12, 50])
def test_a_grid_has_every_combination_once_and_ends_with_the_last(tmp_path, n_trials):
    search = Search(tmp_path / "grid.json", SPACES["choices"], n_trials)
    tried = [tuple(trial.parameters.values()) for trial in search.run(run)]
    assert len(set(tried)) == len(tried) == min(n_trials, 12) == search.n_trials


def test_a_grid_begun_in_another_order_is_completed(tmp_path):
    space = SPACES["choices"]
    Search(tmp_path / "grid.json", space, 5, seed=7).run(run)
    trials = Search(tmp_path / "grid.json", space, 12, seed=0).run(run)
    assert len({tuple(trial.parameters.values()) for trial in trials}) == 12


def test_a_best_value_at_the_end_of_its_range_is_named(tmp_path):
    space = {"low": Range(1.0, 100.0), "middle": Range(1.0, 100.0), "choice": (1, 2)}
    search = Search(tmp_path / "trials.json", space, 1)
    search.run(lambda number, parameters: Trial({"low": 1.1, "middle": 10.0, "choice": 1}, 0.0, [], 0.0))
    assert search.at_the_edge == ["low"]
