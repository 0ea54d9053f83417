"""Keras files of somebody else: what is built from them, and attacks, each of which Keras's own loader falls for."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from schemas.errors import UsageError
from tests.support.keras_files import disturbed, edit, small
from trainer.models.keras_file import read_keras_model

pytestmark = pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning")

PACKAGES = {"2": tf.keras, "3": keras}
NAMES = ("m.keras", "m.h5")


def read(path: Path) -> Any:
    return read_keras_model(str(path), path.read_bytes())


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        read(path)
    assert str(error.value).startswith(f"path={path}: ")
    return str(error.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("release", PACKAGES)
def test_a_graph_with_a_shared_layer_branches_and_options_gives_what_it_gave(tmp_path, release, name):
    package = PACKAGES[release]
    layers = package.layers
    images = layers.Input((12, 12, 3))
    x = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu", dtype="float32")(images)
    shared = layers.DepthwiseConv2D(3, padding="same", depthwise_regularizer="l2", name="shared")
    y = shared(layers.BatchNormalization(name="frozen", trainable=False)(shared(x)))
    y = layers.Concatenate()([layers.Add()([x, y]), layers.ReLU(6.0)(layers.Rescaling(0.5, 3.0)(y))])
    model = disturbed(package.Model(images, layers.Dropout(0.5)(layers.Dense(2)(y))))
    model.save(tmp_path / name)
    pixels = np.random.default_rng(1).uniform(size=(2, 12, 12, 3)).astype("float32")
    built = read(tmp_path / name)
    np.testing.assert_allclose(built(pixels, training=False), model(pixels, training=False), atol=1e-6)
    assert len(built.trainable_variables) == len(model.trainable_variables)


@pytest.mark.parametrize(("release", "name"), [("2", "m.keras"), ("2", "m.h5"), ("3", "m.keras")])
def test_arithmetic_between_layers(tmp_path, release, name):
    package = PACKAGES[release]
    images = package.layers.Input((4, 4, 3))
    x = package.layers.ReLU(6.0)(images + 3.0) * (1 / 6)
    model = package.Model(images, (x * images - 1.0) / 2.0)
    model.save(tmp_path / name)
    pixels = np.random.default_rng(1).uniform(size=(2, 4, 4, 3)).astype("float32")
    np.testing.assert_allclose(read(tmp_path / name)(pixels), model(pixels), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("release", PACKAGES)
class TestConfiguration:
    """Configurations that call a function, import a module, or name a class of somebody else's."""

    def saved(self, folder: Path, release: str, name: str, *layers: Any) -> Path:
        package = PACKAGES[release]
        x = images = package.layers.Input((8, 8, 3))
        for layer in layers or (package.layers.Conv2D(4, 3),):
            x = layer(x)
        package.Model(images, x).save(folder / name)
        return folder / name

    def test_a_lambda(self, tmp_path, release, name):
        path = self.saved(tmp_path, release, name, PACKAGES[release].layers.Lambda(lambda x: x + 1))
        assert "holds a Lambda layer, which is not on the list of what is built from a Keras file, because" in refused(
            path
        )

    @pytest.mark.parametrize("kind", ["TFOpLambda", "SlicingOpLambda", "ClassMethod", "InstanceMethod"])
    @pytest.mark.parametrize("function", ["io.write_file", "load_op_library", "io.gfile.rmtree", "raw_ops.WriteFile"])
    def test_a_function_of_tensorflow(self, tmp_path, release, name, kind, function):
        path = self.saved(tmp_path, release, name)
        harm = tmp_path / "harm"

        def change(config: Any) -> None:
            layer = config["config"]["layers"][1]
            layer["class_name"], layer["config"] = kind, {"name": layer["config"]["name"], "function": function}
            layer["config"]["cls_symbol"] = layer["config"]["method_name"] = function
            if layer.get("module"):
                layer["module"], layer["registered_name"] = "tf_keras.src.layers.core.tf_op_layer", kind
            layer["inbound_nodes"] = [["_CONSTANT_VALUE", -1, str(harm), {"contents": "x", "filename": str(harm)}]]

        edit(path, change)
        assert "holds " in (message := refused(path))
        assert ("the call of tf." + function if kind == "TFOpLambda" else kind) in message
        assert not harm.exists()

    @pytest.mark.parametrize("wrapper", ["TimeDistributed", "Bidirectional", "Wrapper", "RNN"])
    def test_a_layer_around_another(self, tmp_path, release, name, wrapper):
        path = self.saved(tmp_path, release, name)

        def change(config: Any) -> None:
            layer = config["config"]["layers"][1]
            layer["class_name"], inner = wrapper, {"class_name": "Lambda", "config": {"function": "x"}}
            layer["config"] = {"name": layer["config"]["name"], "layer": inner, "cell": inner}

        edit(path, change)
        assert f"holds a {wrapper} layer, which is not on the list" in refused(path)

    @pytest.mark.parametrize(
        "option",
        [
            {"class_name": "Lambda", "config": {}, "module": "keras.layers", "registered_name": "Lambda"},
            {"class_name": "function", "config": "system", "module": "os", "registered_name": "function"},
            {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}},
            "os>system",
            "io.write_file",
        ],
    )
    def test_an_activation_of_somebody_elses(self, tmp_path, release, name, option):
        path = self.saved(tmp_path, release, name)
        edit(path, lambda config: config["config"]["layers"][1]["config"].update(activation=option))
        assert "holds a Conv2D layer with activation = " in refused(path)

    @pytest.mark.parametrize("key", ["kernel_initializer", "activity_regularizer", "bias_constraint"])
    def test_an_initializer_of_somebody_elses_is_of_no_use_and_not_made(self, tmp_path, release, name, key):
        path = self.saved(tmp_path, release, name)
        option = {"class_name": "function", "config": "system", "module": "os", "registered_name": "function"}
        edit(path, lambda config: config["config"]["layers"][1]["config"].update({key: option}))
        assert len(read(path).variables) == 2

    @pytest.mark.parametrize("key", ["padding", "strides", "dtype", "batch_input_shape", "evil"])
    def test_an_object_as_an_option(self, tmp_path, release, name, key):
        path = self.saved(tmp_path, release, name)
        option = {"class_name": "Lambda", "config": {"name": {"class_name": "Lambda", "config": {}}}}
        edit(path, lambda config: config["config"]["layers"][1]["config"].update({key: option}))
        assert f"holds a Conv2D layer with {key} = " in refused(path)

    def test_a_class_that_is_registered_under_a_listed_name(self, tmp_path, release, name):
        path = self.saved(tmp_path, release, name)
        edit(path, lambda config: config["config"]["layers"][1].update(registered_name="Evil>Conv2D"))
        assert "which is not on the list" in refused(path)

    def test_a_model_in_a_model(self, tmp_path, release, name):
        package = PACKAGES[release]
        inner = package.Sequential([package.layers.Lambda(lambda x: x + 1)])
        path = self.saved(tmp_path, release, name, inner)
        assert "which is not on the list" in refused(path)
        package.Sequential([package.layers.Input((8, 8, 3)), package.layers.Conv2D(4, 3)]).save(path)
        assert "holds a Sequential model, where a functional one was expected, which is not on" in refused(path)

    def test_an_argument_of_somebody_elses(self, tmp_path, release, name):
        path = self.saved(tmp_path, release, name)
        evil = {"class_name": "function", "config": "system", "module": "os", "registered_name": "function"}

        def change(config: Any) -> None:
            (node,) = config["config"]["layers"][1]["inbound_nodes"]
            (node[0][3] if release == "2" else node["kwargs"]).update(mask=evil)

        edit(path, change)
        assert "holds a layer's argument " in refused(path)

    def test_layers_in_a_circle(self, tmp_path, release, name):
        package = PACKAGES[release]
        path = self.saved(tmp_path, release, name, package.layers.ReLU(name="a"), package.layers.ReLU(name="b"))

        def change(config: Any) -> None:
            layers = config["config"]["layers"]
            layers[1]["inbound_nodes"] = [["b", 0, 0, {}]]

        edit(path, change)
        assert "cannot load it (" in refused(path)

    def test_more_weights_than_the_file_has(self, tmp_path, release, name):
        path = self.saved(tmp_path, release, name)
        edit(path, lambda config: config["config"]["layers"][1]["config"].update(filters=10**12))
        assert "its layers have more weights than the file has values" in refused(path)


class TestWeights:
    """Weights that lie elsewhere, or that are more than the file's bytes."""

    @pytest.fixture(params=[(release, name) for release in PACKAGES for name in NAMES], ids="-".join)
    def path(self, request, tmp_path) -> Path:
        release, name = request.param
        small(PACKAGES[release]).save(tmp_path / name)
        return tmp_path / name

    def change(self, path: Path, change: Any) -> None:
        """Changes the HDF5 file of a model."""
        if path.suffix == ".h5":
            with h5py.File(path, "r+") as file:
                change(file)
            return
        with zipfile.ZipFile(path) as archive:
            archive.extractall(path.parent / "parts")
        with h5py.File(path.parent / "parts/model.weights.h5", "r+") as file:
            change(file)
        with zipfile.ZipFile(path, "w") as archive:
            for part in ("metadata.json", "config.json", "model.weights.h5"):
                archive.write(path.parent / "parts" / part, part)

    @staticmethod
    def first(file: h5py.File) -> h5py.Dataset:
        datasets: list[h5py.Dataset] = []
        file.visititems(lambda _, item: datasets.append(item) if isinstance(item, h5py.Dataset) else None)
        return datasets[0]

    def test_external_storage(self, path, tmp_path):
        (tmp_path / "secret").write_bytes(bytes(10_000))

        def change(file: h5py.File) -> None:
            name, shape = self.first(file).name, self.first(file).shape
            del file[name]
            file.create_dataset(name, shape, "float32", external=[(str(tmp_path / "secret"), 0, h5py.h5f.UNLIMITED)])

        self.change(path, change)
        assert "does not have its values in the file, uncompressed. It is not loaded; save" in refused(path)

    @pytest.mark.parametrize("kind", ["external", "soft"])
    def test_links(self, path, tmp_path, kind):
        with h5py.File(tmp_path / "secret.h5", "w") as file:
            file["x"] = np.zeros(4, np.float32)

        def change(file: h5py.File) -> None:
            name = self.first(file).name
            del file[name]
            file[name] = (
                h5py.ExternalLink(str(tmp_path / "secret.h5"), "x") if kind == "external" else h5py.SoftLink("/")
            )

        self.change(path, change)
        assert "is a link to another one or to another file" in refused(path)

    def test_values_of_other_datasets(self, path, tmp_path):
        with h5py.File(tmp_path / "secret.h5", "w") as file:
            file["x"] = np.zeros(4, np.float32)

        def change(file: h5py.File) -> None:
            name = self.first(file).name
            del file[name]
            layout = h5py.VirtualLayout((4,), np.float32)
            layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "x", (4,))
            file.create_virtual_dataset(name, layout)

        self.change(path, change)
        assert "does not have its values in the file" in refused(path)

    @pytest.mark.parametrize("options", [{"compression": "gzip", "chunks": (1000,)}, {}])
    def test_zeros_without_end(self, path, options):
        def change(file: h5py.File) -> None:
            name = self.first(file).name
            del file[name]
            file.create_dataset(name, (10**12,), "float32", **options)

        self.change(path, change)
        assert "does not have its values in the file" in refused(path)


@pytest.mark.parametrize("name", ["config.json", "metadata.json", "model.weights.h5"])
def test_a_zip_bomb(tmp_path, name):
    small(tf.keras).save(tmp_path / "m.keras")
    shutil.move(tmp_path / "m.keras", tmp_path / "plain.keras")
    with zipfile.ZipFile(tmp_path / "plain.keras") as plain, zipfile.ZipFile(tmp_path / "m.keras", "w") as bomb:
        for entry in plain.namelist():
            packed = zipfile.ZIP_DEFLATED if entry == name else zipfile.ZIP_STORED
            bomb.writestr(entry, plain.read(entry) + b" " * 1_000_000, packed)
    assert (tmp_path / "m.keras").stat().st_size < 2_100_000
    assert f"is damaged, or no Keras model ({name} is compressed, which Keras never does); " in refused(
        tmp_path / "m.keras"
    )
