"""What strangers look at first: versions agree, the changelog has its usual form, what was to go is gone."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import lvd
from lvd._deprecation import DEPRECATIONS, Deprecation, deprecated

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def release(version):
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", version)[0].split(".")))


def overdue(deprecations, version):
    return [one.sentence for one in deprecations if release(one.gone_in) <= release(version)]


class TestDeprecated:
    @pytest.fixture(autouse=True)
    def known(self, monkeypatch):
        known = []
        monkeypatch.setattr("lvd._deprecation.DEPRECATIONS", known)
        return known

    def test_a_function_works_on_and_warns(self, known):
        @deprecated(since="1.1", gone_in="1.3", instead="lvd.load")
        def read(folder: str) -> str:
            """Reads."""
            return folder.upper()

        with pytest.warns(
            FutureWarning, match=r"read is deprecated since lvd 1\.1, to be removed in 1\.3: use lvd\.load"
        ):
            assert read("a") == "A"
        assert (read.__name__.split(".")[-1], read.__doc__) == ("read", "Reads.")
        assert [one.gone_in for one in known] == ["1.3"]

    def test_the_line_that_is_named_is_the_users(self, tmp_path):
        (tmp_path / "theirs.py").write_text(
            "from lvd._deprecation import deprecated\n"
            "@deprecated(since='1.1', gone_in='1.3', instead='max')\n"
            "def most(x):\n    return x\n"
            "\nmost(3)\n"
        )
        program = [sys.executable, "-W", "default", str(tmp_path / "theirs.py")]
        said = subprocess.run(program, capture_output=True, text=True, check=True).stderr
        assert "theirs.py:6: FutureWarning: most is deprecated" in said

    def test_a_class_stays_a_class(self):
        @deprecated(since="1.1", gone_in="1.3", instead="Newer")
        class Older:
            def __init__(self, value):
                self.value = value

        with pytest.warns(FutureWarning, match="use Newer"):
            assert Older(3).value == 3
        assert isinstance(Older, type)

    def test_nothing_is_said_before_it_is_used(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            deprecated(since="1.1", gone_in="1.3", instead="x")(lambda: None)

    def test_what_is_overdue_is_found(self):
        going = Deprecation("read", "1.1", "1.3", "load")
        assert not overdue([going], "1.2.9")
        assert overdue([going], "1.3.0rc1") == [going.sentence]
        assert overdue([going], "1.10") == [going.sentence]


def test_what_was_to_be_gone_is_gone():
    for name in lvd.__all__:
        getattr(lvd, name)
    assert not overdue(DEPRECATIONS, lvd.__version__)


def test_versions_agree():
    assert re.search(r"^version: (.+)$", text_of("CITATION.cff"), re.MULTILINE)[1] == lvd.__version__
    headings = re.findall(r"^## \[(.+?)\](?: - (.+))?$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert headings[1][0] == lvd.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", headings[1][1])
    assert [release(version) for version, _ in headings[1:]] == sorted(
        (release(version) for version, _ in headings[1:]), reverse=True
    )


def test_the_changelog_has_the_usual_sections():
    for version in re.split(r"^## ", text_of("CHANGELOG.md"), flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert set(sections) <= set(SECTIONS)
        assert len(sections) == len(set(sections))


def test_security_names_tests_that_are_there():
    names = re.findall(r"`(tests/[\w/]+\.py)`", text_of("SECURITY.md"))
    assert len(names) >= 5
    assert not [name for name in names if not (ROOT / name).is_file()]


def test_the_page_on_stability_names_what_is_there():
    table = text_of("docs/stability.md").split("## Experimental")[1].split("\n## ")[0]
    names = re.findall(r"`lvd\.([\w.]+)`", table)
    assert len(names) >= 5
    for name in names:
        value = lvd
        for part in name.split("."):
            value = getattr(value, part)


def test_the_source_archive_names_files_that_are_there():
    included = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["sdist"][
        "include"
    ]
    assert not [name for name in included if not (ROOT / name).exists()]
