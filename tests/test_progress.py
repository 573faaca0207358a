"""Progress of a computation on a terminal and in a log."""

import sys

import pytest

from sbert_core import progress
from sbert_core.progress import ProgressBar


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_at_intervals(clock, capsys):
    with ProgressBar("embed", 1000, "rows", done=100) as bar:
        for second in range(1, 26):
            clock[0] = second
            bar.advance(20)
    assert capsys.readouterr().err.splitlines() == [
        "embed: 300 of 1,000 rows, 20 rows/s, 35 s left",
        "embed: 500 of 1,000 rows, 20 rows/s, 25 s left",
    ]


def test_a_line_has_the_status_and_no_speed_before_the_first_unit(clock, capsys):
    with ProgressBar("train", 3, "steps") as bar:
        clock[0] = 10
        bar.advance_to(0, "loss 0.5")
        clock[0] = 20
        bar.advance_to(2)
    assert capsys.readouterr().err.splitlines() == [
        "train: 0 of 3 steps, loss 0.5",
        "train: 2 of 3 steps, 0.1 steps/s, 10 s left, loss 0.5",
    ]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ProgressBar("embed", 10, "rows") as bar:
        bar.advance(10)
    assert "embed: 100%" in capsys.readouterr().err


def test_a_disabled_bar_shows_nothing(clock, capsys):
    with ProgressBar("embed", 10, "rows", disable=True) as bar:
        clock[0] = 100
        bar.advance(10)
    assert capsys.readouterr().err == ""
