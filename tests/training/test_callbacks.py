"""The caller's functions in `train` and `resume`, and the bar in a notebook."""

import os
import re
import signal
import sys

import pytest

from facetric.training import resume, train
from training.tiny_runs import rows_of, tiny_config


def test_every_step_and_every_validation_is_told(tmp_path):
    steps, validations = {}, {}
    result = train(tiny_config(tmp_path), on_step=steps.__setitem__, on_validation=validations.__setitem__)
    assert steps == {row["step"]: row["loss"] for row in rows_of(result.folder) if "loss" in row}
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    assert validations == result.validation
    assert list(validations) == [0, 3, 6]


def test_an_exception_ends_training_and_the_run_can_be_resumed(tmp_path):
    whole = train(tiny_config(tmp_path / "whole"))

    def stop(step, scores):
        if step == 3:
            raise TimeoutError("good enough")

    with pytest.raises(TimeoutError, match="good enough"):
        train(tiny_config(tmp_path / "partly"), on_validation=stop)
    seen = []
    result = resume(tmp_path / "partly" / "tiny", on_step=lambda step, loss: seen.append(step))
    assert seen == [3, 4, 5, 6]  # from the checkpoint of step 2
    assert rows_of(result.folder) == rows_of(whole.folder)


def test_a_signal_in_the_last_step_is_told_and_the_run_is_finished(tmp_path):
    def signaled(step, loss):
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    result = train(tiny_config(tmp_path), on_step=signaled)
    assert (result.signal_number, result.finished) == (signal.SIGTERM, True)
    assert rows_of(result.folder)[-1]["step"] == 6


NOTEBOOK = """
import sys
sys.path[:0] = {paths!r}
from facetric.progress import steps_shown
from facetric.training import train
from training.tiny_runs import tiny_config
result = train(tiny_config({folder!r}))
with steps_shown() as progress:
    progress("Embedding", 3, 7)
"""


@pytest.mark.slow
def test_a_notebook_shows_bars_that_are_changed_in_place(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    paths = [path for path in sys.path if path]
    source = NOTEBOOK.format(paths=paths, folder=str(tmp_path / "runs"))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(book, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "".join(output.get("text") or output["data"]["text/plain"] for output in book.cells[0].outputs)
    assert re.search(r"training: 100%.* 6/6 .*loss ", shown), shown
    assert re.search(r"Embedding.* 3/7", shown), shown
    assert (tmp_path / "runs" / "tiny" / "metrics.jsonl").is_file()
