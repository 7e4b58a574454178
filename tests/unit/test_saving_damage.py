"""What is not as it was written is refused by name, and never answers."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import lvd

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + RNG.normal(size=60) * np.abs(X[:, 1])
LEVELS = [0.5, 0.8]


def make(estimator, **parameters):
    kernel = lvd.MahalanobisKernel(n_components=2, max_iter=5)
    return lvd.LVDRegressor(estimator, kernel=kernel, confidence_level=0.8, random_state=0, **parameters)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saved models of three kinds by name, each with the intervals it must give."""
    root = tmp_path_factory.mktemp("saved")
    net = lvd.NetRegressor(hidden_sizes=(3,), n_batches=5)
    models = {
        "net": make(net, conformity_score="normalized").fit(X, Y),
        "cqr": lvd.ConformalizedQuantileRegressor(net, confidence_level=LEVELS, random_state=0).fit(X, Y),
    }
    models["conformal"] = models["net"].calibrators_[0]
    for name, model in models.items():
        model.save(root / name)
    return {name: (root / name, answer(model)) for name, model in models.items()}


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved["net"][0], tmp_path / "model")


def answer(model):
    if isinstance(model, lvd.LocalConformal):
        return model.radius(np.ones((2, 3)), LEVELS)
    return model.predict_interval(X, LEVELS)[1]


def read(folder):
    return json.loads((folder / "manifest.json").read_text())


def seal(folder, manifest):
    """Write a manifest whose digests are right: damage that only the deeper checks can find."""
    for name in manifest["files"]:
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.pop("sha256", None)
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def root_entry(manifest):
    return manifest["objects"][-1]


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


class TestFiles:
    def test_no_folder(self, tmp_path):
        with pytest.raises(
            lvd.InputError, match=r"no saved model at .*manifest.json cannot be read \(No such"
        ):
            lvd.load(tmp_path / "missing")

    def test_a_file_for_a_folder(self, folder):
        with pytest.raises(lvd.InputError, match="no saved model at"):
            lvd.load(folder / "manifest.json")

    def test_missing_tensors(self, folder):
        (folder / "tensors.safetensors").unlink()
        with pytest.raises(
            lvd.InputError, match=r"tensors.safetensors in .* cannot be read .*save the model again"
        ):
            lvd.load(folder)

    def test_a_flipped_byte_in_the_tensors(self, folder):
        flip(folder / "tensors.safetensors", -1)
        with pytest.raises(
            lvd.InputError, match=r"tensors.safetensors in .* has been changed since it was saved"
        ):
            lvd.load(folder)

    def test_truncated_tensors(self, folder):
        data = (folder / "tensors.safetensors").read_bytes()
        (folder / "tensors.safetensors").write_bytes(data[:-8])
        with pytest.raises(lvd.InputError, match=r"tensors.safetensors in .* has a different size"):
            lvd.load(folder)

    def test_an_edited_number_in_the_manifest(self, folder):
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(
            text.replace('"confidence_level": 0.8', '"confidence_level": 0.9')
        )
        with pytest.raises(lvd.InputError, match=r"manifest.json in .* has been changed since it was saved"):
            lvd.load(folder)

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "3", "[" * 100_000, '{"format": NaN}', '{"format": 1, "a": 1e999}', "\x00\xff"],
    )
    def test_no_json(self, folder, text):
        (folder / "manifest.json").write_text(text, encoding="latin-1")
        with pytest.raises(lvd.InputError, match=r"manifest.json in .* is not valid JSON"):
            lvd.load(folder)

    @pytest.mark.parametrize("version", [None, 0, -1, "1", 1.5, True])
    def test_no_format_version(self, folder, version):
        seal(folder, read(folder) | {"format": version})
        with pytest.raises(lvd.InputError, match="names no format version"):
            lvd.load(folder)

    def test_an_older_format(self, folder):
        seal(folder, read(folder) | {"format": 1, "lvd": "0.2.0"})
        with pytest.raises(
            lvd.InputError, match=r"has format 1, written by lvd 0.2.0, .* fit the model again"
        ):
            lvd.load(folder)

    def test_a_newer_format(self, folder):
        seal(folder, read(folder) | {"format": 3, "lvd": "9.0"})
        message = (
            f"has format 3, written by lvd 9.0; this lvd {lvd.__version__} reads formats up to 2: upgrade"
        )
        with pytest.raises(lvd.InputError, match=message):
            lvd.load(folder)

    @pytest.mark.parametrize(
        "name", ["../x", "/etc/passwd", "..", "a/b.skops", "model.pkl", "estimator-0.skops\n"]
    )
    def test_forbidden_file_names(self, folder, name):
        manifest = read(folder)
        manifest["files"][name] = {"bytes": 0, "sha256": ""}
        seal(folder, manifest)
        with pytest.raises(lvd.InputError, match="lists a file of the forbidden name"):
            lvd.load(folder)


class TestContent:
    """Damage under digests that are right."""

    def edit_tensors(self, folder, change):
        tensors = load_file(folder / "tensors.safetensors")
        change(tensors)
        save_file(tensors, folder / "tensors.safetensors")
        seal(folder, read(folder))

    @pytest.mark.parametrize("shape", [[3], [10**15, 10**15], [-2], "2", None, []])
    def test_a_wrong_shape(self, folder, shape):
        manifest = read(folder)
        manifest["tensors"]["model_.x_mean_"]["shape"] = shape
        seal(folder, manifest)
        with pytest.raises(lvd.InputError, match=r"tensors.safetensors in .* holds model_.x_mean_ as"):
            lvd.load(folder)

    def test_absurd_shapes_in_the_header(self, folder):
        path = folder / "tensors.safetensors"
        path.write_bytes(path.read_bytes().replace(b'"shape":[2]', b'"shape":[9]'))
        seal(folder, read(folder))
        with pytest.raises(lvd.InputError, match="is not a valid safetensors file"):
            lvd.load(folder)

    def test_nan(self, folder):
        self.edit_tensors(folder, lambda tensors: tensors["model_.x_mean_"].fill_(torch.nan))
        with pytest.raises(lvd.InputError, match=r"model_.x_mean_ holds NaN"):
            lvd.load(folder)

    def test_infinity_where_there_was_none(self, folder):
        self.edit_tensors(folder, lambda tensors: tensors["kernels_.0.scale_"].fill_(torch.inf))
        with pytest.raises(lvd.InputError, match=r"holds kernels_.0.scale_ as .*'finite': False"):
            lvd.load(folder)

    def test_a_tensor_too_many(self, folder):
        self.edit_tensors(folder, lambda tensors: tensors.update(other=torch.ones(1)))
        with pytest.raises(lvd.InputError, match="does not list the tensors"):
            lvd.load(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda root: root.update({"class": "Popen"}), "KeyError: 'Popen'"),
            (lambda root: root.update({"class": "os.system"}), "KeyError: 'os.system'"),
            (lambda root: root.update({"class": "MahalanobisKernel"}), "MahalanobisKernel has no parameter"),
            (lambda root: root["parameters"].update(other=1), "LVDRegressor has no parameter 'other'"),
            (lambda root: root["parameters"].update(conformity_score="x"), "conformity_score must be one of"),
            (lambda root: root["parameters"].update(confidence_level=9.0), "confidence_level must lie in"),
            (lambda root: root["parameters"].update(y_range={"tuple": [2, 1]}), "lowest < highest"),
            (lambda root: root["parameters"].update(device="x"), "device"),
            (lambda root: root["learned"].update(predict=1), "'predict' cannot be the name of a learned"),
            (lambda root: root["learned"].update(__class__=1), "'__class__' cannot be the name of a learned"),
            (lambda root: root["learned"].update(kernels_={"object": 99}), "IndexError"),
            (lambda root: root["learned"].update(kernels_={"object": -1}), "no object has the number -1"),
            (lambda root: root["learned"].update(kernels_={"pickle": "x"}), "KeyError: 'pickle'"),
            (lambda root: root["learned"].update(kernels_={"scalar": [1, "object"]}), "unknown type 'object'"),
            (lambda root: root["learned"].update(calibrators_=[]), "do not fit together"),
            (lambda root: root["learned"].pop("calibrators_"), "do not fit together .AttributeError"),
            (lambda root: root["learned"].update(n_targets_=7, model_=3), "do not fit together"),
        ],
    )  # fmt: skip
    def test_a_wrong_description(self, folder, change, message):
        """Told in loading, or, where parts do not fit together, at the first use."""
        manifest = read(folder)
        change(root_entry(manifest))
        seal(folder, manifest)
        with pytest.raises(lvd.InputError, match=message):
            lvd.load(folder).predict_interval(X)

    def test_a_part_is_no_model(self, folder):
        manifest = read(folder)
        manifest["objects"].pop()
        seal(folder, manifest)
        with pytest.raises(lvd.InputError, match=r"describes a \w+, which is not a model"):
            lvd.load(folder)

    def test_a_parameter_of_a_later_version_has_its_default(self, folder):
        manifest = read(folder)
        del root_entry(manifest)["parameters"]["calib_size"]
        seal(folder, manifest)
        assert lvd.load(folder).calib_size == "auto"

    def test_a_skops_file_with_other_types(self, tmp_path):
        io = pytest.importorskip("skops.io")
        make(Ridge()).fit(X, Y).save(tmp_path / "model")
        (tmp_path / "model" / "estimator-0.skops").write_bytes(io.dumps(shutil.rmtree))
        seal(tmp_path / "model", read(tmp_path / "model"))
        with pytest.raises(
            lvd.InputError, match=r"estimator-0.skops cannot be loaded: it holds shutil.rmtree"
        ):
            lvd.load(tmp_path / "model")


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees") / "model"
    learner = lvd.TreesRegressor(max_iter=3, min_samples_leaf=5)
    lvd.SplitConformalRegressor(learner, random_state=0).fit(X, Y).save(folder)
    return folder


class TestTrees:
    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("left", lambda left: left * 0),  # a circle
            ("right", lambda right: torch.arange(len(right))),
            ("left", lambda left: left + len(left)),
            ("right", lambda right: right + 2**40),
            ("left", lambda left: -left),
            ("roots", lambda roots: roots + 10**6),
            ("roots", lambda roots: roots - 1),
            ("features", lambda features: features - 10**9),
            ("features", lambda features: features + 2),
            ("features", lambda features: features + 2**50),
            ("leaves", torch.zeros_like),
            ("leaves", lambda leaves: leaves[1:]),
            ("values", lambda values: values[:-1]),
            ("missing_left", lambda left: left[:0]),
            ("thresholds", lambda thresholds: thresholds.float()),
            ("roots", lambda roots: roots.double()),
            ("left", lambda left: left[:, None]),
        ],
    )
    def test_that_lead_nowhere_are_refused(self, trees, tmp_path, name, change):
        folder = shutil.copytree(trees, tmp_path / "model")
        tensors, manifest = load_file(folder / "tensors.safetensors"), read(folder)
        (place,) = (key for key in tensors if key.endswith(f"ensembles_.0.{name}"))
        tensors[place] = change(tensors[place]).contiguous()
        kind = str(tensors[place].dtype).removeprefix("torch.")
        manifest["tensors"][place] |= {"shape": list(tensors[place].shape), "dtype": kind}
        save_file(tensors, folder / "tensors.safetensors")
        seal(folder, manifest)
        with pytest.raises(
            lvd.InputError, match=r"can be rebuilt|trees refer to nodes, columns or categories"
        ):
            lvd.load(folder).predict(X)


class TestRepeats:
    """One tensor or file, referred to again and again, fills no memory."""

    def test_a_few_references_share_one_array(self, folder):
        manifest = read(folder)
        root_entry(manifest)["learned"]["again"] = [{"array": "residuals_calib_"}] * 3
        seal(folder, manifest)
        again = lvd.load(folder).again
        assert again[0] is again[1] is again[2]

    @pytest.mark.parametrize("kind", ["array", "fortran array", "tensor"])
    def test_many_references_are_refused(self, folder, kind, monkeypatch):
        monkeypatch.setattr("lvd.store.decoding.LEAST_BYTES", 1000)
        manifest = read(folder)
        root_entry(manifest)["learned"]["again"] = [{kind: "residuals_calib_"}] * 400
        seal(folder, manifest)
        with pytest.raises(
            lvd.InputError, match=r"refers to more than [\d,]+ bytes, many times what the folder"
        ):
            lvd.load(folder)

    def test_many_modules_with_the_same_weights(self, folder, monkeypatch):
        monkeypatch.setattr("lvd.store.decoding.LEAST_BYTES", 1000)
        manifest = read(folder)
        (module, *_) = (entry for entry in manifest["objects"] if "state" in entry)
        manifest["objects"][-1:] = [*[module] * 400, root_entry(manifest)]
        seal(folder, manifest)
        with pytest.raises(
            lvd.InputError, match=r"refers to more than [\d,]+ bytes, many times what the folder"
        ):
            lvd.load(folder)

    def test_many_estimators_of_one_file(self, tmp_path, monkeypatch):
        pytest.importorskip("skops")
        monkeypatch.setattr("lvd.store.decoding.LEAST_BYTES", 1000)
        folder = tmp_path / "model"
        make(Ridge()).fit(X, Y).save(folder)
        manifest = read(folder)
        manifest["objects"][-1:] = [*[{"estimator": "estimator-0.skops"}] * 40, root_entry(manifest)]
        seal(folder, manifest)
        with pytest.raises(
            lvd.InputError, match=r"refers to more than [\d,]+ bytes, many times what the folder"
        ):
            lvd.load(folder)


STRANGE = (None, True, -1, 0, 3, 10**30, -0.5, 1e308, "", "x", "../x", "model_", [], [[]], {}, {"object": 0})


def places(node, found):
    """Every (container, key) in a JSON document."""
    keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        found.append((node, key))
        places(node[key], found)
    return found


def damage_a_file(folder, rng):
    """A file is gone, cut, longer, or has a bit or two flipped; the digests are as they were."""
    path = folder / rng.choice(["manifest.json", "tensors.safetensors"])
    data = bytearray(path.read_bytes())
    kind = rng.integers(6)
    if kind == 0:
        path.unlink()
        return
    if kind == 1:
        del data[rng.integers(len(data)) :]
    elif kind == 2:
        data += rng.bytes(8)
    else:
        for position in rng.integers(len(data), size=rng.integers(1, 3)):
            data[position] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def damage_the_manifest(folder, rng):
    """A value in the manifest is another, is gone, or goes by another name; the digests are right."""
    manifest = read(folder)
    found = places(manifest, [])
    container, key = found[rng.integers(len(found))]
    kind = rng.integers(4)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[STRANGE[rng.integers(8, 12)]] = container.pop(key)
    elif kind == 2:
        container[key] = found[rng.integers(len(found))][0]
        try:
            json.dumps(manifest)
        except ValueError:  # a circle, which no file can hold
            container[key] = None
    else:
        container[key] = STRANGE[rng.integers(len(STRANGE))]
    if isinstance(manifest.get("files"), dict):
        seal(folder, manifest)
    else:
        seal(folder, manifest | {"files": {}})


def damage_the_tensors(folder, rng):
    """The header or the numbers have flipped bits; the digests are right."""
    path = folder / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    end = len(data) if rng.integers(2) else 8 + int.from_bytes(data[:8], "little")
    for position in rng.integers(end, size=3):
        data[position] ^= 1 << rng.integers(8)
    path.write_bytes(data)
    seal(folder, read(folder))


@pytest.mark.parametrize("part", range(5))
def test_500_damaged_models(saved, tmp_path, part):
    """Nothing but InputError comes out of a damaged folder.

    Under the old digests a model that loads all the same gives its own intervals; under new ones, as an enemy
    would make them, it gives intervals or an InputError.
    """
    rng = np.random.default_rng(part)
    refused = 0
    for number in range(100):
        source, expected = saved[rng.choice(list(saved))]
        folder = shutil.copytree(source, tmp_path / str(number))
        damage = (damage_a_file, damage_the_manifest, damage_the_tensors)[number % 3]
        damage(folder, rng)
        try:
            given = answer(lvd.load(folder))
        except (lvd.InputError, NotFittedError):
            refused += 1
            continue
        if damage is damage_a_file:
            np.testing.assert_array_equal(given, expected)
        assert not np.isnan(given).any()
    assert refused > 50


VALUES = (
    *STRANGE,
    *({"float": text} for text in ("nan", "inf", "-inf")),
    *({"object": number} for number in (10**30, "0", True)),
    *({"scalar": content} for content in ([1e300, "float16"], [-1, "uint8"], [{"tuple": [1]}, "int8"])),
    *({"tuple": []}, {"tuple": {"object": 0}}, {"dict": [[[], 1]]}, {"dict": [[1, 2]]}, {"array": "x"}),
    *({"texts": ["a"]}, {"given": ["estimator", "x"]}, {"given": [1, 2]}, 2**63, 5e-324, "auto", "meta"),
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a scale of 5e-324 overflows, as it must
@pytest.mark.parametrize("kind", ["net", "cqr", "conformal", "ridge"])
def test_every_place_of_a_manifest(saved, tmp_path, kind):
    """Each value in turn is another one under digests that are right: an InputError, or a model that answers."""
    if kind == "ridge":
        pytest.importorskip("skops")
        folder = tmp_path / "model"
        make(Ridge()).fit(X, Y).save(folder)
    else:
        folder = shutil.copytree(saved[kind][0], tmp_path / "model")
    text, rng, answers = (folder / "manifest.json").read_text(), np.random.default_rng(1), 0
    for number in range(len(places(json.loads(text), []))):
        manifest = json.loads(text)
        container, key = places(manifest, [])[number]
        container[key] = VALUES[rng.integers(len(VALUES))]
        if not isinstance(manifest["files"], dict):
            continue
        seal(folder, manifest)
        try:
            assert not np.isnan(answer(lvd.load(folder))).any()
            answers += 1
        except (lvd.InputError, NotFittedError):
            continue
    assert 0 < answers < number / 2


@pytest.mark.parametrize("name", ["x_mean_", "x_scale_", "y_mean_", "y_scale_", "scale_", "mean_"])
def test_arrays_that_fit_one_row_alone(folder, name):
    """15 rows of calibration errors for a mean or a scale: numpy stretches one row to them, and no other number."""
    manifest = read(folder)
    for entry in manifest["objects"]:
        if name in entry.get("learned", {}):
            entry["learned"][name] = {"array": "residuals_calib_"}
    seal(folder, manifest)
    with pytest.raises(lvd.InputError, match=r"do not fit together|can be rebuilt|embeddings has 3 features"):
        lvd.load(folder).predict_interval(X)


def test_an_estimator_of_other_columns(tmp_path):
    pytest.importorskip("skops")
    for name, columns in (("two", X), ("three", np.c_[X, X[:, :1]])):
        make(Ridge()).fit(columns, Y).save(tmp_path / name)
    for file in (tmp_path / "three").glob("*.skops"):
        shutil.copy(file, tmp_path / "two")
    seal(tmp_path / "two", read(tmp_path / "two"))
    with pytest.raises(lvd.InputError, match="do not fit together"):
        lvd.load(tmp_path / "two").predict(X)
