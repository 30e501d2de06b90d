"""`--set` and `--unset`: settings changed and dropped on the command line."""

import pytest

from facetric.runs import ConfigError, read_config
from facetric.runs.config_file import first_difference, parse_config, resolve_paths
from facetric.runs.recipes import recipe


@pytest.fixture
def cars(request):
    return request.config.rootpath / "configs" / "cars.toml"


def test_the_loss_of_a_file_is_changed_by_dropping_its_option(cars):
    with pytest.raises(ConfigError, match="takes no margin_weight"):
        read_config(cars, overrides=["loss.name=triplet_semihard"])
    config = read_config(cars, overrides=["loss.name=triplet_semihard"], unset=["loss.margin_weight"])
    assert config.loss.name == "triplet_semihard"
    assert "margin_weight" not in config.loss.model_dump()
    assert first_difference(config, read_config(cars)) == "loss.name"


def test_a_whole_table_is_dropped_and_set_anew(cars):
    config = read_config(cars, overrides=["loss.name=npairs", "run.steps=7", "optimizer.warmup_steps=0"], unset=["loss", "run"])
    assert (config.loss.name, config.run.steps, config.run.name) == ("npairs", 7, "cars")
    assert config.run.validate_every == 200  # the default, as in the file


def test_a_key_that_is_dropped_can_be_set(cars):
    assert read_config(cars, overrides=["run.steps=60"], unset=["run.steps"]).run.steps == 60


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("loss.margin_wieght", "does not set it; did you mean 'loss.margin_weight'?"),
        ("optimiser.head_lr", "did you mean 'optimizer.head_lr'?"),
        ("loss.margin.x", "cars.toml does not set it"),
        ("data.name.x", "cars.toml does not set it"),
        ("", "cars.toml does not set it: leave it out"),
    ],
)
def test_a_key_that_is_not_in_the_file_cannot_be_dropped(cars, key, words):
    with pytest.raises(ConfigError) as refused:
        read_config(cars, unset=[key])
    assert str(refused.value).startswith(f"--unset {key}: ")
    assert words in str(refused.value)


def test_a_chosen_setting_is_dropped_too():
    assert recipe("glyphs").config.optimizer.schedule == "cosine"
    assert recipe("glyphs", unset=["optimizer.schedule"]).config.optimizer.schedule == "constant"
    assert recipe("glyphs").config.optimizer.schedule == "cosine"  # the shared table is untouched
    with pytest.raises(ConfigError, match="the choice of settings does not set it"):
        recipe("glyphs", unset=["model.freeze_through"])


def test_two_spellings_of_one_root_are_the_same_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "link").symlink_to("photos")
    spelled = [parse_config({"data": {"name": "folder", "root": str(root)}}) for root in ("photos", tmp_path / "photos", "link")]
    assert [first_difference(spelled[0], other) for other in spelled] == [None] * 3
    tables = [
        parse_config({"data": {"name": "csv", "options": {"file": f}}}) for f in ("a.csv", "./a.csv", str(tmp_path / "a.csv"))
    ]
    assert [first_difference(tables[0], other) for other in (*tables, resolve_paths(tables[0]))] == [None] * 4
    assert resolve_paths(tables[0]).data.options["file"] == str(tmp_path / "a.csv")
    other = parse_config({"data": {"name": "folder", "root": "elsewhere"}})
    assert first_difference(spelled[0], other) == "data.root"
    assert first_difference(spelled[0], parse_config({"data": {"name": "folder"}})) == "data.root"
