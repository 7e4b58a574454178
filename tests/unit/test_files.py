"""Files and folders are written whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from lvd._files import atomic_folder, atomic_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_half(part):
    part.write_text("new")
    raise RuntimeError("half way")


def test_a_file_takes_its_name_at_the_end(tmp_path):
    target = tmp_path / "table.csv"
    with atomic_path(target) as part:
        assert part.suffix == ".csv"
        part.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert names(tmp_path) == ["table.csv"]


def test_a_failure_leaves_the_old_file(tmp_path):
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), atomic_path(target) as part:
        write_half(part)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["table.csv"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "model"
    for content in ("first", "second"):
        with atomic_folder(target) as part:
            (part / content).write_text(content)
        assert names(target) == [content]
    assert names(tmp_path) == ["model"]


def test_a_failure_leaves_the_old_folder(tmp_path):
    target = tmp_path / "model"
    with atomic_folder(target) as part:
        (part / "weights").write_text("old")
    with pytest.raises(RuntimeError, match="half way"), atomic_folder(target) as part:
        write_half(part / "weights")
    assert (target / "weights").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_path(tmp_path / "file") as part:
            part.write_text("x")
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750
