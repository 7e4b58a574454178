"""What must never happen to files: lost to a kill, opened to others, read without end, or written over."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import lvd
from lvd import _files
from lvd._files import atomic_folder, atomic_path, check_output
from lvd.cli.console import check_files

X = np.random.default_rng(0).normal(size=(40, 2))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def write(target, text, **options):
    with atomic_folder(target, **options) as part:
        (part / "weights").write_text(text)


KILLED_AT_EVERY_LINE = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path
from lvd import _files

target, in_two_steps = Path(sys.argv[1]), sys.argv[2] == "two steps"
if in_two_steps:
    _files._exchange = lambda one, other: False


def save(text, line=None):
    lines = count(1)

    def kill(frame, event, argument):
        if event == "line" and next(lines) == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return kill

    if line is not None:
        sys.settrace(lambda frame, *_: kill if frame.f_code.co_filename == _files.__file__ else None)
    with _files.atomic_folder(target) as part:
        (part / "weights").write_text(text)


for line in count(1):
    for left in target.parent.iterdir():
        shutil.rmtree(left)
    save("old")
    child = os.fork()
    if not child:
        save("new", line)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    moved = target.with_name("model-2") / "weights"
    found = target / "weights"
    print(found.read_text() if found.exists() else "moved" if moved.read_text() == "old" else "lost")
    if status == 0:
        break
"""


def run_killed(target, way):
    outcome = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EVERY_LINE, target, way],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return outcome.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux swaps two names in one step")
def test_a_kill_at_any_line_leaves_a_whole_folder(tmp_path):
    found = run_killed(tmp_path / "model", "one step")
    assert len(found) > 20
    assert set(found) == {"old", "new"}
    assert found[-1] == "new"


def test_the_killing_finds_a_gap_where_there_is_one(tmp_path):
    """In two steps there is a moment without a model: then the old one has another name, and is not lost."""
    found = run_killed(tmp_path / "model", "two steps")
    assert set(found) == {"old", "moved", "new"}


def test_a_failure_between_two_steps_puts_the_old_folder_back(tmp_path, monkeypatch):
    write(tmp_path / "model", "old")
    monkeypatch.setattr(_files, "_exchange", lambda one, other: False)
    rename = Path.rename

    def refuse_the_new(self, target):
        if self.suffix == ".part":
            raise OSError(errno.ENOTEMPTY if (tmp_path / "model").exists() else errno.EIO, "broken")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new)
    with pytest.raises(OSError, match="broken"):
        write(tmp_path / "model", "new")
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"


def test_where_the_old_folder_is_when_it_cannot_be_put_back(tmp_path, monkeypatch):
    write(tmp_path / "model", "old")
    monkeypatch.setattr(_files, "_exchange", lambda one, other: False)
    rename = Path.rename

    def refuse_the_name(self, target):
        if target.name == "model":
            raise OSError(errno.ENOTEMPTY if target.exists() else errno.EIO, "broken")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_name)
    with pytest.raises(lvd.InputError, match=r"\(broken\); what was there is now in '.*model-2'"):
        write(tmp_path / "model", "new")
    assert (tmp_path / "model-2" / "weights").read_text() == "old"
    assert names(tmp_path) == ["model-2"]


def test_without_replace_both_folders_are_kept(tmp_path):
    write(tmp_path / "model", "old")
    write(tmp_path / "model-2", "other")
    with pytest.raises(
        lvd.InputError,
        match=r"in the meantime, and was not replaced; the result was saved to '.*model-3' instead",
    ):
        write(tmp_path / "model", "new", replace=False)
    texts = {path.name: (path / "weights").read_text() for path in tmp_path.iterdir()}
    assert texts == {"model": "old", "model-2": "other", "model-3": "new"}


class TestAccess:
    def test_a_private_file_stays_private(self, tmp_path):
        target = tmp_path / "file"
        target.touch(mode=0o600)
        with atomic_path(target) as part:
            part.write_text("new")
        assert (mode_of(target), target.read_text()) == (0o600, "new")

    def test_a_private_folder_stays_private(self, tmp_path):
        target = tmp_path / "model"
        write(target, "old")
        target.chmod(0o700)
        write(target, "new")
        assert (mode_of(target), (target / "weights").read_text()) == (0o700, "new")

    def test_the_group_of_a_file_stays(self, tmp_path):
        target = tmp_path / "file"
        target.touch()
        try:
            os.chown(target, 12345, 12345)
        except PermissionError:
            pytest.skip("only root may give files away")
        with atomic_path(target) as part:
            part.write_text("new")
        assert (target.stat().st_uid, target.stat().st_gid) == (12345, 12345)

    def test_a_group_that_cannot_be_kept_does_not_pass_its_rights_on(self, tmp_path, monkeypatch):
        target = tmp_path / "file"
        target.touch()
        target.chmod(0o664)
        real = Path.stat

        def of_another_group(self, **options):
            status = list(real(self, **options))
            status[5] += self == target
            return os.stat_result(status)

        def refuse(*_):
            raise PermissionError

        monkeypatch.setattr(Path, "stat", of_another_group)
        monkeypatch.setattr(os, "chown", refuse)
        with atomic_path(target) as part:
            part.write_text("new")
        assert mode_of(target) == 0o604

    def test_a_link_is_written_through(self, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        target = tmp_path / "elsewhere" / "table.csv"
        link, dangling = tmp_path / "link.csv", tmp_path / "dangling.csv"
        link.symlink_to(target)
        dangling.symlink_to(tmp_path / "elsewhere" / "new.csv")
        target.write_text("old")
        for path in (link, dangling):
            with atomic_path(path) as part:
                assert part.parent == target.parent
                part.write_text("new")
            assert path.is_symlink()
            assert path.read_text() == "new"
        assert names(tmp_path / "elsewhere") == ["new.csv", "table.csv"]

    def test_a_link_to_a_folder_is_written_through(self, tmp_path):
        write(tmp_path / "model", "old")
        (tmp_path / "link").symlink_to("model")
        write(tmp_path / "link", "new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "model" / "weights").read_text() == "new"

    def test_a_device_is_not_replaced(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.csv")
        with pytest.raises(OSError, match="it is a device or a pipe"), atomic_path(tmp_path / "pipe.csv"):
            pass
        assert stat.S_ISFIFO((tmp_path / "pipe.csv").stat().st_mode)

    def test_a_circle_of_links_is_not_replaced(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        with pytest.raises(OSError, match=r"[Ss]ymbolic links"), atomic_path(tmp_path / "a"):
            pass
        assert (tmp_path / "a").is_symlink()

    def test_the_longest_name_there_can_be(self, tmp_path):
        target = tmp_path / ("a" * 251 + ".csv")
        with atomic_path(target) as part:
            part.write_text("new")
        assert target.read_text() == "new"


class TestOutputs:
    @pytest.fixture
    def data(self, tmp_path):
        (tmp_path / "data.csv").write_text("x\n1\n")
        (tmp_path / "folder").mkdir()
        return tmp_path / "data.csv"

    def test_the_input_by_any_name(self, data, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "soft.csv").symlink_to(data)
        (tmp_path / "hard.csv").hardlink_to(data)
        for out in (data, "data.csv", "folder/../data.csv", "soft.csv", "hard.csv"):
            with pytest.raises(lvd.InputError, match=r"--out .* would overwrite its own input .*data.csv"):
                check_files({"--out": Path(out)}, None, "other.csv", data)
        check_files({"--out": Path("new.csv")}, data)

    def test_two_outputs_of_one_name(self, data, tmp_path):
        outputs = {"--report": tmp_path / "new.csv", "--test-out": tmp_path / "folder" / ".." / "new.csv"}
        with pytest.raises(lvd.InputError, match=r"--test-out .* would overwrite --report '.*new.csv'"):
            check_files(outputs, data)

    def test_in_a_folder_that_is_read_or_written(self, data, tmp_path):
        inside = {"--report": tmp_path / "folder" / "new.html"}
        with pytest.raises(lvd.InputError, match=r"--report .* would overwrite its own input"):
            check_files(inside, tmp_path / "folder")
        with pytest.raises(lvd.InputError, match=r"--report .* would overwrite --out"):
            check_files(inside, data, model=tmp_path / "folder")
        with pytest.raises(lvd.InputError, match=r"--out .* would overwrite its own input"):
            check_files({}, data, model=tmp_path)

    def test_another_name_of_a_file_in_a_folder(self, data, tmp_path):
        (tmp_path / "folder" / "manifest.json").write_text("{}")
        (tmp_path / "hard.json").hardlink_to(tmp_path / "folder" / "manifest.json")
        with pytest.raises(lvd.InputError, match=r"--out .* would overwrite its own input"):
            check_files({"--out": tmp_path / "hard.json"}, tmp_path / "folder")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("a" * 300, "File name too long"),
            ("missing/new.csv", "No such file or directory"),
            ("data.csv/new.csv", "Not a directory"),
            ("folder", "it is a folder; give the name of a file"),
        ],
    )
    def test_what_cannot_be_written(self, data, tmp_path, name, message):
        before = names(tmp_path)
        with pytest.raises(lvd.InputError, match=f"cannot write .*{message}"):
            check_output(tmp_path / name)
        assert names(tmp_path) == before


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    pytest.importorskip("skops")
    lvd.SplitConformalRegressor(Ridge(), random_state=0).fit(X, X[:, 0]).save(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def seal(folder, **content):
    """The manifest, changed, with digests that are right."""
    manifest = json.loads((folder / "manifest.json").read_text()) | content
    for name in manifest["files"]:
        data = (folder / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    del manifest["sha256"]
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


class TestReading:
    def test_the_model_is_in_order(self, model):
        seal(model)
        assert np.isfinite(lvd.load(model).predict(X)).all()

    @pytest.mark.parametrize("name", ["manifest.json", "tensors.safetensors", "estimator-0.skops"])
    def test_no_pipe_and_no_device(self, model, name):
        seal(model)
        (model / name).unlink()
        os.mkfifo(model / name)  # nobody writes to it: reading would never end
        with pytest.raises(lvd.InputError, match=f"{name} .*(regular file|different size)"):
            lvd.load(model)
        (model / name).unlink()
        (model / name).symlink_to("/dev/zero")
        with pytest.raises(lvd.InputError, match=f"{name} .*(regular file|different size)"):
            lvd.load(model)

    def test_a_manifest_too_long(self, model):
        with (model / "manifest.json").open("r+b") as file:
            file.truncate(1 << 40)  # a hole, which takes no space on the disk
        with pytest.raises(
            lvd.InputError,
            match=r"manifest.json cannot be read \(it has 1,\S* bytes, and may have 67,108,864\)",
        ):
            lvd.load(model)

    def test_tensors_beyond_all_memory(self, model):
        with (model / "tensors.safetensors").open("r+b") as file:
            file.truncate(1 << 43)
        manifest = json.loads((model / "manifest.json").read_text())
        manifest["files"]["tensors.safetensors"]["bytes"] = 1 << 43
        del manifest["sha256"]
        manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        (model / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(lvd.InputError, match=r"tensors.safetensors .* cannot be read \(it has 8,796,"):
            lvd.load(model)

    def test_no_manifest_is_written_that_could_not_be_read(self, tmp_path, monkeypatch):
        from lvd.store import folder

        method = lvd.SplitConformalRegressor(lvd.NetRegressor(n_batches=2), random_state=0).fit(X, X[:, 0])
        monkeypatch.setattr(folder, "MANIFEST_BYTES", 1000)
        with pytest.raises(lvd.InputError, match="more than the 1,000 that load"):
            method.save(tmp_path / "model")
        assert names(tmp_path) == []

    def check_archive(self, model, data, message):
        (model / "estimator-0.skops").write_bytes(data)
        seal(model)
        with pytest.raises(lvd.InputError, match=rf"estimator-0.skops cannot be loaded: {message}"):
            lvd.load(model)

    def repack(self, model, compression=zipfile.ZIP_STORED, **parts):
        """The estimator's archive with other parts in it."""
        packed = BytesIO()
        with (
            zipfile.ZipFile(model / "estimator-0.skops") as old,
            zipfile.ZipFile(packed, "w", compression) as new,
        ):
            for name in old.namelist():
                new.writestr(name, parts.get(name, old.read(name)))
            for name in parts.keys() - set(old.namelist()):
                new.writestr(name, parts[name])
        return packed.getvalue()

    def test_a_compressed_archive(self, model):
        bomb = self.repack(model, zipfile.ZIP_DEFLATED, **{"schema.json": b" " * (80 << 20)})
        assert len(bomb) < 1 << 20
        self.check_archive(model, bomb, "it is compressed")

    def test_parts_that_share_their_bytes(self, model):
        """A hundred entries for one part: each is honest, all together are more than the file."""
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("a.npy", b"0" * 100_000)
            for number in range(100):
                twin = zipfile.ZipInfo(f"{number}.npy")
                vars_of = {
                    key: getattr(archive.filelist[0], key) for key in ("CRC", "file_size", "compress_size")
                }
                for key, value in vars_of.items():
                    setattr(twin, key, value)
                twin.header_offset = archive.filelist[0].header_offset
                archive.filelist.append(twin)
            archive._didModify = True
        self.check_archive(model, packed.getvalue(), "it says that its parts are longer than the file")

    def test_an_archive_in_the_archive(self, model):
        inner = BytesIO()
        with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data.npy", b"\0" * (90 << 20))
        bomb = self.repack(model, **{"7.npz": inner.getvalue()})
        self.check_archive(model, bomb, "its part 7.npz is too large when it is unpacked")

    def test_a_schema_too_long(self, model):
        bomb = self.repack(model, **{"schema.json": b" " * (65 << 20)})
        self.check_archive(model, bomb, r"its schema.json has 68,157,440 bytes, and may have")
