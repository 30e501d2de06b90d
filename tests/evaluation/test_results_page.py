"""docs/results.md begins with a verdict, and the verdict is what the records of the studies say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDIES = ("cub_head", "cub_finetune", "glyphs")  # a column each
OURS = "facility_location_subsets (5 seeds)"
ROWS = {
    "triplet, semi-hard": "triplet_semihard",
    "SupCon": "sup_con",
    "MultiSimilarity": "multi_similarity",
    "lifted structure": "lifted_structure",
    "N-pairs": "npairs",
    "ProxyAnchor": "proxy_anchor",
    "SoftTriple": "soft_triple",
    "the paper's, whole batch": "facility_location",
}
CLOSED_FORM = "no loss: the closed-form head"


def rows(text):
    """Cells of a table in Markdown by the first of each row; of a later table where both have it."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return {cells[0]: cells[1:] for cells in ([cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines)}


def verdict():
    """The first table of the page."""
    return rows((ROOT / "docs" / "results.md").read_text().split("\n\n")[2])


def numbers(cell):
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", cell)]


def difference(record, name):
    """(difference, standard error) of NMI, Recall@1 and MAP@R: paired by seed, or to what is the same for all seeds."""
    columns = (0, 1, 5)
    if name != CLOSED_FORM:
        return [numbers(record[f"{OURS} − {ROWS[name]} (5 seeds)"][i]) for i in columns]
    [other] = [cells for row, cells in record.items() if row.startswith("closed-form head")]
    own = [numbers(record[OURS][i]) for i in columns]
    return [[mean - numbers(other[i])[0], sd / 5**0.5] for i, (mean, sd) in zip(columns, own, strict=True)]


@pytest.mark.parametrize("place", range(len(STUDIES)), ids=STUDIES)
def test_the_verdict_is_what_the_records_say(place):
    record, said = rows((ROOT / "benchmarks" / "results" / STUDIES[place] / "table.md").read_text()), verdict()
    for name in (*ROWS, CLOSED_FORM):
        found = [
            "=" if abs(gain) <= 2 * error + 1e-9 else f"{gain:+.2f}".replace("-", "−") for gain, error in difference(record, name)
        ]
        assert said[name][place] == " / ".join(found), name


def test_the_page_opens_with_the_answer_and_the_commands():
    text = (ROOT / "docs" / "results.md").read_text()
    assert text.splitlines()[2].startswith("**Is it better than triplet?")
    assert verdict()["facetric reproduce …"] == ["cub --setting head", "cub --setting finetune", "glyphs"]
