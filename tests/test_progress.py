"""Bars on a terminal, names of steps where lines are asked for, nothing anywhere else."""

import io
import sys

import pytest

from facetric.progress import steps_shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(**options):
    with steps_shown(**options) as progress:
        for done in range(4):
            progress("Embedding", done, 3)
        progress("Clusters", 1, 1)


def test_nothing_is_shown_away_from_a_terminal(capsys):
    shown()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("prefix", "lines"), [("", "Embedding\nClusters\n"), ("  ", "  embedding\n  clusters\n")])
def test_a_line_per_step_if_asked_for(capsys, prefix, lines):
    shown(lines=True, prefix=prefix)
    assert capsys.readouterr() == ("", lines)


def test_a_terminal_shows_a_bar_per_step_and_is_left_as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown(lines=True)
    drawn = sys.stderr.getvalue()
    assert "Embedding:   0%" in drawn
    assert "Clusters: 100%" in drawn
    assert drawn.rpartition("\r")[0].rpartition("\r")[2].strip() == ""  # the last thing written clears the line


def test_only_the_first_process_of_torchrun_shows_anything(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    shown(lines=True)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown()
    assert sys.stderr.getvalue() == ""
