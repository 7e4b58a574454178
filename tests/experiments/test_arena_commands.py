"""``python -m experiments arena``: run, go on where it stopped, and write the page."""

from __future__ import annotations

import pytest

from command_line import experiments_here

RUN = ("arena", "--tables", "corner", "--models", "trees", "--seeds", "0", "--levels", "0.9")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena") / "results"
    outcome = experiments_here(*RUN, "--methods", "split,ten-lines", "--out", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "2 results, 2 of them done now; 0 failed\n"
    return folder


def test_what_is_finished_is_not_done_again(folder):
    outcome = experiments_here(*RUN, "--methods", "split,ten-lines", "--out", folder)
    assert outcome.out == "2 results, 0 of them done now; 0 failed\n"
    assert len(list((folder / "calls").iterdir())) == 1


def test_the_page_and_the_compact_table(folder, tmp_path):
    first, second = tmp_path / "first" / "arena.md", tmp_path / "second" / "arena.md"
    first.parent.mkdir()
    second.parent.mkdir()
    table = tmp_path / "arena.csv"
    outcome = experiments_here("arena-page", folder, "--csv", table, "--out", first)
    assert (outcome.code, outcome.err) == (0, "")
    assert experiments_here("arena-page", table, "--out", second).code == 0
    text = first.read_text()
    assert second.read_text() == text
    assert "ten lines" in text
    assert "python -m experiments arena --tables corner" in text
    assert (first.parent / "images" / "arena-trees.svg").is_file()
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tables", "moon"), "unknown name 'moon' in tables"),
        (("--methods", "magic"), "unknown name 'magic' in methods"),
        (("--levels", "90"), "must lie in (0, 1)"),
        (("--seeds", "x"), "seeds must look like"),
    ],
)
def test_refusals(tmp_path, words, message):
    outcome = experiments_here("arena", *words, "--out", tmp_path / "results")
    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())
    assert not (tmp_path / "results").exists()


def test_the_page_does_not_overwrite_what_it_reads(folder):
    file = next((folder / "runs").iterdir())
    before = file.read_bytes()
    outcome = experiments_here("arena-page", folder, "--csv", file, "--out", folder / "page.md")
    assert outcome.code == 2
    assert file.read_bytes() == before
