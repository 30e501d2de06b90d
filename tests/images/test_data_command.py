"""`facetric data check`: what it prints, and its exit status."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from facetric.cli.main import app
from images.broken_files import write_broken_files
from images.official_layouts import write_cub, write_folder


def run(*arguments):
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


def test_a_sound_dataset_exits_with_0(tmp_path):
    result = run(write_folder(tmp_path))
    assert result.exit_code == 0
    assert "layout folder" in result.stdout
    assert "Fine: 12 files opened" in result.stdout
    assert result.stderr == ""


def test_every_broken_file_is_in_the_table(tmp_path):
    kinds = write_broken_files(tmp_path)
    result = run(tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    for name, kind in kinds.items():
        assert any(kind in line and repr(name)[1:-1] in line for line in lines), name


def test_json_has_everything_and_the_same_status(tmp_path):
    kinds = write_broken_files(tmp_path)
    result = run(tmp_path, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["ok"] is False
    assert found["layout"] == "files"
    assert {repr(name)[1:-1] for name in kinds} <= {finding["subject"] for finding in found["findings"]}


def test_remarks_fail_only_when_strict(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "ant" / "notes.txt").write_text("x")
    assert run(tmp_path).exit_code == 0
    assert "Fine, 1 remark" in run(tmp_path).stdout
    assert run(tmp_path, "--strict").exit_code == 1


def test_published_counts_stand_beside_what_was_found(tmp_path):
    result = run(write_cub(tmp_path))
    assert result.exit_code == 1
    assert "5,864" in result.stdout
    assert "2 problems" in result.stdout


def test_a_long_list_is_cut_in_the_table_only(tmp_path):
    write_folder(tmp_path)
    for k in range(60):
        (tmp_path / "ant" / f"{k:03d}.jpg").write_text(str(k))
    assert "and 10 more; --all lists them" in run(tmp_path).stdout
    assert "059.jpg" in run(tmp_path, "--all").stdout
    assert len(json.loads(run(tmp_path, "--json").stdout)["findings"]) == 60


@pytest.mark.parametrize(
    ("arguments", "message"), [(["nowhere"], "nowhere does not exist"), ([".", "--layout", "cup"], "did you mean 'cub'?")]
)
def test_a_wrong_question_is_one_line_on_stderr_and_status_2(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_the_help_has_an_example():
    result = run("--help")
    assert result.exit_code == 0
    assert "Example: facetric data check" in result.stdout


def test_the_installed_command_leaves_no_litter_in_a_log(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "ant" / "Zaunkönig.jpg").write_bytes(b"broken")
    command = [sys.executable, "-W", "error", "-m", "facetric", "data", "check", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert result.returncode == 1
    assert result.stderr == b""
    assert b"\x1b" not in result.stdout
    assert b"\r" not in result.stdout
    assert "ant/Zaunkönig.jpg" in result.stdout.decode()


def test_a_class_name_cannot_send_escape_sequences_to_the_terminal(tmp_path):
    folder = write_folder(tmp_path)
    ant = folder / "ant"
    ant.rename(folder / "ant\x1b[31m")
    (folder / "ant\x1b[31m" / "1.png").write_bytes(b"broken")
    (folder / "empty\x1b[2J" / "deeper").mkdir(parents=True)  # the error message offers it as the root
    checked = CliRunner().invoke(app, ["data", "check", str(folder)], color=True)  # as on a terminal: click strips nothing
    assert checked.exit_code == 1
    assert "ant\\x1b[31m" in checked.stdout
    assert "empty\\x1b[2J" in checked.stdout
    trained = CliRunner().invoke(app, ["train", "--data", "folder", "--root", str(folder)], color=True)
    assert trained.exit_code == 2
    assert "empty\\x1b[2J" in trained.stderr
    assert "\x1b" not in checked.output + trained.output
