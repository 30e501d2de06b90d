"""Configurations: what is accepted, what is refused and how, and that they survive being written."""

import runpy
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from facetric.losses import LOSSES, build_loss
from facetric.runs import ConfigError, TrainConfig, read_config
from facetric.runs.config import TABLES
from facetric.runs.config_file import parse_config, to_toml

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
DATA = {"data": {"name": "glyphs"}}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_of_the_project_is_valid_and_survives_being_written(path):
    config = read_config(path)
    assert config.run.name == path.stem
    assert parse_config(tomllib.loads(to_toml(config))) == config


def test_there_is_a_config_per_dataset_and_per_baseline():
    stems = {path.stem for path in CONFIGS}
    assert {"glyphs", "cub", "cars", "products"} <= stems
    for loss in ("triplet_semihard", "lifted_structure", "npairs"):
        for dataset in ("glyphs", "cub"):
            assert read_config(ROOT / "configs" / f"{dataset}_{loss}.toml").loss.name == loss


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_paper_normalizes_for_its_own_loss_and_triplet_only(path):
    loss = read_config(path).loss
    assert loss.normalize == (loss.name in ("facility_location", "triplet_semihard"))


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"loss": {"margn_weight": 1}}, "unknown key 'margn_weight' in [loss]; did you mean 'margin_weight'?"),
        ({"optimiser": {}}, "unknown table or key 'optimiser'; did you mean 'optimizer'?"),
        ({"steps": 10}, "did you mean 'run.steps'?"),
        ({"run": {"margin_weight": 1}}, "did you mean 'loss.margin_weight'?"),
        ({"model": {"zzz": 1}}, "known keys: backbone, dim"),
        ({"loss": {"name": "npair"}}, "did you mean 'npairs'?"),
        ({"loss": {"name": "npairs", "margin": 1.0}}, "loss 'npairs' takes no margin; it takes norm_weight, normalize"),
        ({"run": {"steps": -1}}, "run.steps"),
        ({"run": {"name": "../up"}}, "run.name"),
        ({"model": {"cached_views": 2}}, "set model.freeze_through"),
        ({"loss": {"subset_size": 2}}, "without subsets: set loss.n_subsets"),
        ({"loss": {"n_subsets": 2, "subset_size": 64}, "batches": {"size": 32}}, "subset_size (64) exceeds batches.size (32)"),
        ({"run": {"steps": 5}, "optimizer": {"warmup_steps": 5}}, "must be below run.steps (5)"),
        ({"optimizer": {"head_lr": float("nan")}}, "optimizer.head_lr"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(tables, words):
    with pytest.raises(ConfigError) as refused:
        parse_config(DATA | tables)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_python_is_refused_what_toml_is():
    with pytest.raises(ValidationError, match="did you mean 'data'"):
        TrainConfig.model_validate({"dat": {}})


def test_a_config_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        parse_config(DATA).run.steps = 3


def test_the_options_of_a_loss_are_written_out():
    resolved = tomllib.loads(to_toml(parse_config(DATA)))["loss"]
    assert resolved["margin"] == "nmi"
    assert resolved["refine"] == "pam"
    assert parse_config(DATA | {"loss": {"refine": "none"}}).loss.keywords()["refine"] is None
    for name, kind in LOSSES.items():
        kind(**parse_config(DATA | {"loss": {"name": name}}).loss.keywords())


@pytest.mark.parametrize(
    ("override", "table", "key", "value"),
    [
        ("loss.margin_weight=4", "loss", "margin_weight", 4.0),
        ("run.name=other", "run", "name", "other"),
        ('run.name="quoted"', "run", "name", "quoted"),
        ("data.root=/a path/with=signs", "data", "root", "/a path/with=signs"),
        ("data.flip=false", "data", "flip", False),
        ("run.precision=32", "run", "precision", "32"),
        ("data.options.size=40", "data", "options", {"size": 40}),
    ],
)
def test_a_setting_is_changed_on_the_command_line(tmp_path, override, table, key, value):
    (tmp_path / "c.toml").write_text('[data]\nname = "glyphs"\n')
    assert getattr(getattr(read_config(tmp_path / "c.toml", overrides=[override]), table), key) == value


@pytest.mark.parametrize("override", ["steps=4", "run.steps", ".steps=1", "data.name.x=1"])
def test_a_malformed_override_is_refused(tmp_path, override):
    (tmp_path / "c.toml").write_text('[data]\nname = "glyphs"\n')
    with pytest.raises(ConfigError, match="--set"):
        read_config(tmp_path / "c.toml", overrides=[override])


@pytest.mark.parametrize("character", ["9", "["])
def test_a_value_that_goes_on_and_on_is_refused(tmp_path, character):
    (tmp_path / "c.toml").write_text('[data]\nname = "glyphs"\n')
    with pytest.raises(ConfigError, match=r"--set run\.steps=.{20}… is a number of too many digits"):
        read_config(tmp_path / "c.toml", overrides=[f"run.steps={character * 5000}"])


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no configuration"):
        read_config(tmp_path / "nothing.toml")
    for text in ("[run\n", f"[run]\nsteps = {'9' * 5000}\n", f"run = {'[' * 5000}\n"):
        (tmp_path / "broken.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"broken\.toml cannot be read as TOML"):
            read_config(tmp_path / "broken.toml")


@given(root=st.text(min_size=1).filter(lambda text: "\x00" not in text and text.isprintable()), rate=st.floats(1e-30, 1e30))
def test_any_value_survives_being_written(root, rate):
    config = parse_config({"data": {"name": "csv", "root": root, "options": {root: rate}}, "optimizer": {"head_lr": rate}})
    assert parse_config(tomllib.loads(to_toml(config))) == config


def test_every_setting_is_described_and_in_the_table():
    assert all(field.description for table in TABLES.values() for field in table.model_fields.values())
    page = runpy.run_path(str(ROOT / "docs/settings_page.py"))
    assert all(meaning for _, meaning in page["option_rows"]().values())
    table = page["settings_table"]()
    assert [key for fields in TABLES.values() for key in fields.model_fields if f"| `{key}`" not in table] == []


def test_a_loss_of_pytorch_metric_learning_is_taken_with_its_options():
    name = "pytorch_metric_learning.ProxyAnchorLoss"
    table = parse_config(DATA | {"loss": {"name": name, "options": {"alpha": 16}}}).loss
    assert table.normalize
    loss = build_loss(table.name, table.options, dim=8, n_classes=5)
    assert loss.alpha == 16
    assert loss.proxies.shape == (5, 8)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"name": "pytorch_metric_learning.SupConLoss", "margin_weight": 3.0}, "[loss.options]; got loss.margin_weight"),
        ({"name": "triplet_semihard", "options": {"alpha": 3}}, "[loss.options] is for losses with a dotted name"),
    ],
)
def test_options_are_refused_where_they_do_not_belong(loss, message):
    with pytest.raises(ConfigError) as error:
        parse_config(DATA | {"loss": loss})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pytorch_metric_learning.ProxyAnchor", {}, "did you mean 'pytorch_metric_learning.ProxyAnchorLoss'?"),
        ("pytorch_metric_learning.SupConLoss", {"alpha": 1}, "takes no alpha; it takes temperature"),
    ],
)
def test_an_unknown_loss_or_option_of_pytorch_metric_learning_is_refused(name, options, message):
    with pytest.raises(ValueError, match=r"loss") as error:
        build_loss(name, options, dim=8, n_classes=5)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "setting", ["run.threads=100000", "data.threads=100000", "data.pad=100000", "data.size=100000", "model.image_size=100000"]
)
def test_sizes_that_no_machine_can_hold_are_refused(setting):
    table, key = setting.split("=")[0].split(".")
    with pytest.raises(ConfigError, match=rf"{table}\.{key}: .* (64|1024|4096); got 100000"):
        parse_config({**DATA, table: {**DATA.get(table, {}), key: 100_000}})


@pytest.mark.parametrize(("setting", "most"), [("run.seed", 2**64 - 1), ("loss.n_subsets", 10_000)])
def test_a_number_beyond_what_can_be_trained_is_refused(setting, most):
    table, key = setting.split(".")
    with pytest.raises(ConfigError, match=rf"{table}\.{key}: .* {most}; got {10**24}"):
        parse_config({**DATA, table: {key: 10**24}})


@pytest.mark.parametrize("name", [[], {}, 3, ["triplet"]])
def test_a_loss_whose_name_is_no_text_is_refused_in_one_line(name):
    with pytest.raises(ConfigError, match=r"loss\.name"):
        parse_config({**DATA, "loss": {"name": name}})


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (
            {"loss": {"nested": [64]}, "model": {"dim": 64}},
            r"nested must be ascending widths below model\.dim \(64\); got \[64\]",
        ),
        ({"loss": {"nested": [32, 16]}}, r"loss\.nested must be ascending widths"),
        ({"model": {"pretrained_fraction": 0.5}}, r"needs a head fitted to it: set model\.head_refit"),
        ({"data": {"name": "cub", "all_classes": True}}, "leaves none to validate or to choose on"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_way_out(tables, words):
    with pytest.raises(ConfigError, match=words):
        parse_config({"data": {"name": "glyphs"}, **tables})
