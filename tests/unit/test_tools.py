"""The tables that the tools write: what was tried, and what is installed."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tools import dependencies, matrix

ROOT = Path(__file__).resolve().parents[2]
PASSED = matrix.Tried(
    "3.12", "newest", "9 passed, 1 xfailed", "2026-01-02", {"python": "3.12.1", "torch": "2.9"}
)


class TestMatrix:
    @pytest.fixture
    def files(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text(f"Before.\n\n{matrix.BEGIN}old\n{matrix.END}\n\nAfter.\n")
        return tmp_path / "matrix.json", page

    def test_new_results_stand_beside_old_ones_in_their_order(self, files):
        results, page = files
        matrix.write([PASSED], *files)
        matrix.write([matrix.Tried("3.11", "oldest", "2 failed, 7 passed", "2026-01-03")], *files)
        assert [one.versions for one in matrix.read_results(results)] == ["oldest", "newest"]
        text = page.read_text()
        assert text.startswith("Before.\n\n<!-- matrix begin -->\n\n| Python |")
        assert text.endswith("<!-- matrix end -->\n\nAfter.\n")
        assert "| 3.11 | oldest | 2 failed, 7 passed | 2026-01-03 | - |" in text
        assert "| 3.12.1 | newest | **9 passed, 1 xfailed** | 2026-01-02 | torch 2.9 |" in text
        matrix.write([PASSED], *files)
        assert page.read_text() == text

    def test_only_what_passed_whole_has_passed(self):
        assert PASSED.passed
        for outcome in ("1 failed, 9 passed", "9 passed, 1 error", "no such interpreter on this machine"):
            assert not matrix.Tried("3.12", "newest", outcome, "2026-01-02").passed

    def test_the_last_line_is_told_without_its_seconds(self):
        assert (
            matrix._last_line("...\n==== 9 passed, 1 skipped in 63.20s (0:01:03) ====\n")
            == "9 passed, 1 skipped"
        )
        assert matrix._last_line("ERROR: no wheel\n\n") == "ERROR: no wheel"

    def test_this_interpreter_is_found_and_none_that_is_not_there(self):
        version = ".".join(map(str, sys.version_info[:2]))
        assert Path(matrix.find_python(version)).exists()
        assert matrix.find_python("3.99") is None

    def test_its_tests_are_there(self):
        assert not [name for name in matrix.CORE if not (ROOT / name).is_file()]

    def test_the_page_has_what_the_results_say(self):
        page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        table = page.partition(matrix.BEGIN)[2].partition(matrix.END)[0]
        assert table.strip() == matrix.table(matrix.read_results()).strip()

    def test_classifiers_name_what_passed(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        named = re.findall(r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
        assert {one.python for one in matrix.read_results() if one.passed} <= set(named)

    def test_the_oldest_versions_are_the_lower_bounds(self):
        text = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8")
        oldest = dict(line.split("==") for line in text.splitlines() if "==" in line)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        bounds = dict(line.split(">=") for line in project["dependencies"])
        for name, bound in bounds.items():
            assert name == "torch" or oldest[name].startswith(bound), name


class TestDependencies:
    def test_each_has_a_purpose(self):
        assert set(dependencies.PURPOSES) == set(dependencies.hard_dependencies())

    def test_the_page_names_them_all_with_their_licences(self):
        page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
        assert not [
            row for name, text in dependencies.PURPOSES.items() if (row := f"| {name} | {text} |") not in page
        ]
        licences = dict(re.findall(r"^\| ([\w.-]+) \d\S* \| ([^|]+) \|", page, re.MULTILINE))
        assert set(licences) == set(dependencies.PURPOSES)
        assert "not said" not in licences.values()

    def test_the_page_names_the_licences_of_what_they_bring_along(self):
        page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
        (along,) = re.findall(r"^The licences of what they bring along: (.+)\.$", page, re.MULTILINE)
        brought = re.findall(r"\| ([a-z][\w, -]+) \(\d+\) \| [\d,]+ \|$", page, re.MULTILINE)
        assert {name for one in brought for name in one.split(", ")} == set(
            re.findall(r"[\w-]+", " ".join(part.rpartition(": ")[2] for part in along.split("; ")))
        )
        assert "not said" not in along

    def test_the_template_is_what_the_page_was_written_from(self):
        page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
        written = re.split(r"\{\w+(?::[^}]*)?\}", dependencies.TEMPLATE.read_text(encoding="utf-8"))
        assert not [text for text in written if text.strip() and text not in page]

    def test_a_requirement_is_named_by_its_normal_name(self):
        for line in ("Ray[data]>=2", "ray ; python_version > '3'", "RAY==1", "ray"):
            assert dependencies.name_of(line) == "ray"
        assert dependencies.name_of("typing_extensions>=4") == "typing-extensions"

    def test_what_is_brought_along_holds_itself_and_no_extras(self):
        assert dependencies.brought_by("jinja2") == {"jinja2", "markupsafe"}
        assert dependencies.brought_by("nothing-of-this-name") == set()
        assert dependencies.megabytes(["numpy"]) > 10

    def test_modules_that_are_loaded_are_seen(self):
        assert dependencies.loaded_after("import json, sys; sys.exit(3)", ["json", "numpy"]) == {"json"}
