"""One score, one name, one value: whatever prints a score of a run prints the same number under the same name."""

import csv
import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from facetric.cli.main import app
from facetric.report import write_report
from facetric.runs import open_run
from facetric.training import train
from facetric.training.study import Study
from facetric.training.study.spaces import METHODS
from facetric.training.study.study import Setting
from training.tiny_runs import rows_of, tiny_config, tiny_tables

NAMES = {
    "nmi": "NMI",
    "ami": "AMI",
    "ari": "ARI",
    "vmeasure": "V-measure",
    "pairwise_f1": "pairwise F1",
    "bcubed_f1": "BCubed F1",
    "purity": "purity",
    "r_precision": "R-precision",
    "map_at_r": "MAP@R",
}
MARKDOWN, LATEX = {"between": r"\|", "outside": " |"}, {"between": "&"}


def printed(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def row_of(name, text, *, between=r"\s{2,}", outside=" "):
    """The scores in one row of a table, by their headings; that of the first cell is empty."""
    lines = [[cell.strip(" *") for cell in re.split(between, line.rstrip("\\ ").strip(outside))] for line in text.splitlines()]
    [headings] = [line for line in lines if "R@1" in line]
    [row] = [line for line in lines if line[0] == name]
    return dict(zip(headings[1 - len(row) :], row[1:], strict=True))


def in_json(report):
    """What evaluation.json holds, under the names that are printed."""
    scores = {f"R@{k}": value for k, value in report["recall_at_k"].items()}
    scores |= {name: report[key] for key, name in NAMES.items()}
    scores |= {f"medoid {NAMES[key]}": report["facility_location"]["scores"][key] for key in ("nmi", "ami")}
    return {name: f"{100 * value:.2f}" for name, value in scores.items()}


def in_words(text):
    return dict(re.findall(r"((?:[a-z]+ )?(?:NMI|AMI|R@1)):? (\d+\.\d\d)", text))


def in_csv(name, text):
    [row] = [row for row in csv.DictReader(text.splitlines()) if row.pop("name") == name]
    return {name: f"{float(value):.2f}" for name, value in row.items() if value and name != "runs"}


def test_a_score_of_a_run_is_one_number_wherever_its_name_is_printed(tmp_path, monkeypatch):
    tables, said = tiny_tables(tmp_path, run={"steps": 3}), []
    tables.pop("loss")
    setting = Setting(tables, {"optimizer.head_lr": (1e-3,)}, n_trials=1, n_seeds=1)
    study = Study(tmp_path, setting, {"triplet": replace(METHODS["triplet_semihard"], searched={})})
    monkeypatch.setattr("facetric.training.study.study.say", said.append)
    study.run()
    run = study.final_folder("triplet", 0)
    text = printed("evaluate", run)
    others = (re.split(r"\s{2,}", line.strip()) for line in text.split("\n\n")[2].splitlines())
    page = write_report(run, images=False, figures=False).page.read_text()
    shown = json.loads(re.search(r'<script type="application/json" id="data-about">(.*?)</script>', page)[1])["scores"]
    places = {
        "evaluation.json": in_json(json.loads((run / "evaluation.json").read_text())),
        "study": in_words(said[-1]),
        "table.md": row_of(run.name, (study.folder / "table.md").read_text(), **MARKDOWN),
        "evaluate": row_of("this run", text),
        "evaluate, others": dict(zip(*others, strict=True)),
        "evaluate, notes": in_words(text),
        "page, cards": {card["name"]: card["value"] for card in shown["cards"]},
        "page, row": dict(zip(shown["columns"], shown["rows"][0]["values"], strict=True)),
        "page, notes": in_words(shown["notes"]),
        "compare": row_of(run.name, printed("compare", run)),
        "compare, markdown": row_of(run.name, printed("compare", run, "--format", "markdown"), **MARKDOWN),
        "compare, latex": row_of(run.name, printed("compare", run, "--format", "latex"), **LATEX),
        "compare, csv": in_csv(run.name, printed("compare", run, "--format", "csv")),
    }
    found = {}
    for place, scores in places.items():
        for name, value in scores.items():
            found.setdefault(name, {})[place] = value
    assert {name: values for name, values in found.items() if len(set(values.values())) > 1} == {}
    assert found.keys() >= {*NAMES.values(), "medoid NMI", "medoid AMI", "R@1", "R@8"}
    assert found["NMI"].keys() == places.keys() - {"evaluate, others"}
    assert found["NMI"]["evaluate"] != found["medoid NMI"]["evaluate"]  # or nothing could have been mixed up


def test_a_validation_score_that_selects_is_the_one_that_evaluate_prints(tmp_path):
    data = {"options": {"min_images": 14}, "validation_fraction": 0.5}
    train(tiny_config(tmp_path, run={"steps": 4, "validate_every": 2, "best_metric": "nmi", "seed": 3}, data=data))
    run = open_run(tmp_path / "tiny")
    best = max((row["validation"] for row in rows_of(run.path) if "validation" in row), key=lambda scores: scores["nmi"])
    text = printed("evaluate", run.path, "--split", "validation", "--no-baselines", "--no-facility")
    report = run.evaluation("validation")
    found = {
        **{f"recall_at_{k}": value for k, value in report.recall_at_k.items()},
        "map_at_r": report.map_at_r,
        "nmi": report.nmi,
    }
    assert found == pytest.approx(best, abs=1e-12)
    assert report.nmi < 0.99  # where every start finds the classes there is nothing to mix up
    assert in_words(text)["NMI"] == f"{100 * best['nmi']:.2f}"
