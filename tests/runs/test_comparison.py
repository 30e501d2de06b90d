"""`facetric compare RUN...`: rows, averages over seeds, the paper's rows, three formats."""

import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from evaluation.run_folders import make_evaluated_run, make_run, nothing
from facetric.cli.main import app
from facetric.evaluation import PUBLISHED, Comparison, Row, Score
from facetric.runs import Run, compare_runs
from facetric.runs.manifest import Manifest
from facetric.text import class_fingerprint


@pytest.fixture
def runs(tmp_path):
    """Two seeds of one configuration, and another configuration."""
    return [
        make_evaluated_run(tmp_path, name="cub-seed0", seed=0, dataset="cub", nmi=0.60, recall_at_1=0.50),
        make_evaluated_run(tmp_path, name="cub-seed1", seed=1, dataset="cub", nmi=0.62, recall_at_1=0.52),
        make_evaluated_run(tmp_path, name="no_margin", seed=0, dataset="cub", margin_weight=0.0, nmi=0.55, recall_at_1=0.47),
    ]


def test_runs_that_differ_in_seed_and_name_are_one_row(runs):
    table = compare_runs(runs, published=False)
    assert [(row.name, row.n_runs) for row in table.rows] == [("cub (2 seeds)", 2), ("no_margin", 1)]
    score = table.rows[0].scores["NMI"]
    assert (score.mean, score.sd) == pytest.approx((61.0, 100 * np.std([0.6, 0.62], ddof=1)))
    assert table.rows[1].scores["NMI"].sd is None
    assert table.columns == ("NMI", "medoid NMI", "R@1", "R@2", "MAP@R")


def squeezed(table):
    """Without the spaces that align its columns."""
    return re.sub(" +", " ", table)


def test_differences_to_a_reference_are_paired_by_seed(tmp_path):
    scores = {"ours": [0.61, 0.64, 0.62], "theirs": [0.60, 0.62, 0.62], "other": [0.5]}
    for name, found in scores.items():
        options = {"dataset": "cub", "recall_at_1": 0.5, "margin_weight": 10.0 * len(name)}
        for seed, nmi in enumerate(found):
            make_evaluated_run(tmp_path, name=f"{name}-seed{seed}", seed=seed, nmi=nmi, **options)
    runs = sorted(tmp_path.glob("*-seed?"), reverse=True)
    [row] = compare_runs(runs, reference=tmp_path / "ours-seed1").differences  # one seed has no spread
    assert (row.name, row.n_runs) == ("ours (3 seeds) − theirs (3 seeds)", 3)
    gains = [1.0, 2.0, 0.0]
    assert (row.scores["NMI"].mean, row.scores["NMI"].sd) == pytest.approx((1.0, np.std(gains, ddof=1) / np.sqrt(3)))
    for form in ("text", "markdown"):
        result = CliRunner().invoke(app, ["compare", *map(str, runs), "--reference", str(runs[-1]), "-f", form])
        assert result.exit_code == 0, result.output
    compared = compare_runs(runs, reference=tmp_path / "ours-seed0")
    assert "| ours (3 seeds) − theirs (3 seeds) | +1.00 ± 0.58 | +1.00 ± 0.58 | +0.00 ± 0.00 |" in squeezed(
        compared.text("markdown")
    )
    assert "ours (3 seeds) − theirs (3 seeds),3,1.0000,0.5774," in compared.text("csv")
    latex = squeezed(compared.text("latex"))
    assert "ours (3 seeds) − theirs (3 seeds) & +1.00 ± 0.58 &" in latex
    assert "% Paired differences: mean over the seeds" in latex
    with pytest.raises(ValueError, match=r"the reference is not one of the runs: .*elsewhere: pass one of them"):
        compare_runs(runs, reference=tmp_path / "elsewhere")


def test_the_papers_rows_stand_beside_its_datasets_only(runs, tmp_path):
    names = [row.name for row in compare_runs(runs).rows]
    assert names[:4] == ["Triplet semihard (paper)", "Lifted struct (paper)", "Npairs (paper)", "Clustering (paper)"]
    glyphs = make_evaluated_run(tmp_path, name="glyphs", dataset="glyphs", nmi=0.5, recall_at_1=0.5)
    assert len(compare_runs([glyphs]).rows) == 1


def test_the_papers_nmi_stands_above_that_of_k_means(runs):
    table = compare_runs(runs)
    assert table.rows[3].scores["NMI"].mean == 59.23
    assert "medoid NMI" not in table.rows[3].scores


def test_the_papers_method_is_its_best_row_everywhere():
    for rows in PUBLISHED.values():
        assert {*rows[0].scores} > {"NMI", "R@1"}
        for column in rows[0].scores:
            assert max(rows, key=lambda row, column=column: row.scores[column].mean).name == "Clustering (paper)"


def test_the_best_of_every_column_is_bold(runs):
    table = compare_runs(runs)
    assert "| cub (2 seeds) | **61.00 ± 1.41** | **60.00 ± 1.41** | **51.00 ± 1.41** |" in squeezed(table.text("markdown"))
    latex = squeezed(table.text("latex"))
    assert "cub (2 seeds) & 61.00 ± 1.41* & 60.00 ± 1.41* & 51.00" in latex
    assert r"no\_margin & 55.00" in latex
    text = table.text("text")
    assert "61.00 ± 1.41*" in text
    assert "59.23" in text
    assert "CVPR 2017" in text


def test_the_command_prints_each_format(runs):
    for form, mark in (
        ("text", "*"),
        ("markdown", "**61.00"),
        ("latex", r"\begin{tabular}"),
        ("csv", "cub (2 seeds),2,61.0000,1.4142"),
    ):
        result = CliRunner().invoke(app, ["compare", *map(str, runs), "--format", form])
        assert result.exit_code == 0, result.output
        assert mark in result.output
    assert "(paper)" not in CliRunner().invoke(app, ["compare", *map(str, runs), "--no-paper"]).output


def test_what_cannot_be_compared_ends_in_one_line(runs, tmp_path):
    other = make_evaluated_run(tmp_path, name="cars", dataset="cars", nmi=0.5, recall_at_1=0.5)
    bare = make_run(tmp_path, name="bare", dataset="cub", checkpoint=None, manifest=nothing())
    for arguments, message in (
        ([runs[0], other], "different datasets"),
        ([bare], f"facetric evaluate {bare}"),
        ([runs[0], "--split", "validation"], "--split validation"),
        ([tmp_path], "no config.toml"),
        ([runs[0], "--format", "html"], "text, markdown, latex"),
    ):
        result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
        assert result.exit_code == 2
        assert message in result.output
        assert result.output.count("\n") == 1


def rescored(run, **changes):
    report = Run(run).evaluation()
    replace(report, **changes).save(Run(run).evaluation_file())
    return run


def test_runs_on_different_images_do_not_share_a_table(runs, tmp_path):
    own = [make_evaluated_run(tmp_path, name=name, dataset="folder", nmi=0.5, recall_at_1=0.5, root=name) for name in "ab"]
    with pytest.raises(ValueError, match=r"different datasets cannot share a table; got folder .*/a \(.*, folder .*/b \("):
        compare_runs(own)
    assert compare_runs(own[:1]).dataset == "folder"
    rescored(runs[2], n_images=12)
    with pytest.raises(ValueError, match=r"different images.*; got 10 images of 2 classes \(.*, 12 images of 2 classes \("):
        compare_runs(runs)


def test_runs_whose_test_classes_were_drawn_differently_do_not_share_a_table(tmp_path):
    runs = [make_evaluated_run(tmp_path, name=name, dataset="folder", nmi=0.5, recall_at_1=0.5, root="photos") for name in "abc"]
    for run, tested in zip(runs, ("oak", "maple", "maple"), strict=True):
        names = ("oak", "maple")
        splits = np.array(["test" if name == tested else "train" for name in names])
        manifest = Manifest("folder", names, ("oak/1.jpg", "maple/1.jpg"), np.arange(2), splits, ("0", "1"))
        Run(run).manifest_file.write_text(manifest.to_json())
    oak, maple = class_fingerprint(["oak"], [0]), class_fingerprint(["maple"], [0])
    scored = rf"different images .*\({oak}, .*/a\), .* images .*\({maple}, .*/b\)"
    with pytest.raises(ValueError, match=rf"{scored}: compare those of one split, .*data\.options\.seed"):
        compare_runs(runs)
    assert compare_runs(runs[1:]).dataset == "folder"


def test_a_seed_that_was_trained_twice_has_a_row_of_its_own(runs, tmp_path):
    again = make_evaluated_run(tmp_path, name="again", seed=0, dataset="cub", nmi=0.60, recall_at_1=0.50)
    table = compare_runs([*runs[:2], again], published=False, reference=runs[0])
    assert [(row.name, row.n_runs) for row in table.rows] == [("cub (2 seeds)", 2), ("again", 1)]
    assert table.differences == ()


def test_one_run_under_two_paths_is_one(runs, monkeypatch):
    monkeypatch.chdir(runs[0].parent)
    assert compare_runs([runs[0], runs[0].name], published=False).rows[0].n_runs == 1


def test_seeds_that_were_scored_differently_are_compared_by_what_they_have_in_common(tmp_path):
    for name, nmi in (("ours", 0.6), ("theirs", 0.5)):
        for seed in range(2):
            options = {"dataset": "cub", "recall_at_1": nmi, "margin_weight": 10 * nmi}
            run = make_evaluated_run(tmp_path, name=f"{name}-seed{seed}", seed=seed, nmi=nmi, **options)
            if seed == 1:
                rescored(run, facility_location=None)
    runs = sorted(tmp_path.glob("*-seed?"))
    [row] = compare_runs(runs, reference=runs[0]).differences
    assert set(row.scores) == {"NMI", "R@1", "R@2", "MAP@R"}


def test_what_there_was_before_training_is_taken_from_any_seed(runs):
    assert len(compare_runs(runs[:2], published=False).rows) == 1
    rescored(runs[1], baselines={"pretrained features": Run(runs[2]).evaluation()})
    assert [row.name for row in compare_runs(runs[:2], published=False).rows] == ["pretrained features, d = 64", "cub (2 seeds)"]


def test_latex_escapes_names_and_keeps_them_on_their_line():
    name = "a\\b ~ c^d_50%\n\\input{secret}"
    table = Comparison("own\n\\input{secret}", "test", ("NMI",), (Row(name, 1, {"NMI": Score(50.0)}),), ("a\rnote",))
    lines = squeezed(table.text("latex")).splitlines()
    escaped = r"a\textbackslash{}b \textasciitilde{} c\^{}d\_50\% \textbackslash{}input\{secret\} & 50.00 \\"
    assert [lines[0], lines[-1]] == [r"% own \input{secret}, test split, in percent", "% a note"]
    assert escaped in [line.strip() for line in lines]


@pytest.mark.parametrize("format", ["text", "markdown", "latex", "csv"])
def test_a_run_folder_cannot_send_escape_sequences_to_the_terminal(runs, format):
    evil = runs[2].rename(runs[2].with_name("red\x1b[31m"))
    result = CliRunner().invoke(app, ["compare", str(evil), "--format", format], color=True)  # click strips nothing
    assert result.exit_code == 0, result.output
    assert "x1b[31m" in result.stdout
    assert "\x1b" not in result.output
