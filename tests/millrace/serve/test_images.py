"""Images and pairs of them: a bad one among good ones fails alone, and none is decoded that is too large."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from schemas.exports.model import ServedModel
from tests.support.model_server import Client, serving
from tests.support.stored_requests import stored_images, stored_rows

pytestmark = pytest.mark.slow


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


def huge_png() -> bytes:
    """A PNG of 10,000,000,000 pixels, in a few bytes."""
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.fixture(scope="module")
def files(stripes) -> list[bytes]:

    paths = sorted((Path(stripes.path).parent / "raw").rglob("*.*"))[:4]
    return [path.read_bytes() for path in paths]


@pytest.fixture(scope="module")
def client(stripes_model):
    with serving(stripes_model.model_dir, batch_rows=3) as server, Client(server) as client:
        yield client


def test_a_bad_image_among_good_ones(client, stripes_model, files):
    bad = {
        b"": "image: empty_file",
        b"no image": "image: not_an_image",
        files[0][: len(files[0]) // 2]: "image: ",
        huge_png(): "image: too_many_pixels",
    }
    sent = [*bad, *files]
    status, answer = client.predict({"instances": [b64(data) for data in sent]})
    assert status == 200
    with ServedModel(str(stripes_model.export)) as model:
        for data, prediction in zip(sent, answer["predictions"], strict=True):
            if data in bad:
                assert prediction["error"].startswith(bad[data])
                assert np.isnan(prediction["probabilities"]).all()
            else:
                alone = model.predict({"image": [data]})
                assert prediction["error"] == ""
                np.testing.assert_allclose(prediction["probabilities"], alone["probabilities"][0], rtol=1e-5)
    status, answer = client.post("/predict", [{"image": b64(data)} for data in sent])
    assert status == 200
    assert ["error" in row for row in answer["predictions"]] == [True] * 4 + [False] * 4


def test_what_is_stored_of_images_that_are_refused(stripes_model, files, tmp_path, monkeypatch):
    """The files as they were sent; and they do not reach the model."""
    model_inputs, predict = [], ServedModel.predict

    def predicts(self: ServedModel, inputs: dict, **settings: str) -> dict:
        model_inputs.extend(inputs["image"])
        return predict(self, inputs, **settings)

    sent = [b"", b"no image", huge_png(), files[0]]
    with serving(stripes_model.model_dir, store=str(tmp_path / "store")) as server, Client(server) as client:
        monkeypatch.setattr(ServedModel, "predict", predicts)
        body = {"instances": [b64(data) for data in sent], "ids": list("abcd")}
        for _ in range(2):
            status, answer = client.predict(body)
            assert (status, [bool(row["error"]) for row in answer["predictions"]]) == (200, [True, True, True, False])
            assert np.isnan(answer["predictions"][0]["probabilities"]).all()
        assert client.post("/predict", {"rows": [{"image": "text"}], "id": "e"})[0] == 200
        assert client.predict({"instances": [b64(b"other")], "id": "b"})[1]["predictions"][0]["error"].startswith(
            "_id: "
        )
    assert model_inputs == [files[0]] * 2
    rows = stored_rows(tmp_path / "store")
    assert [row["id"] for row in rows] == ["a", "b", "c", "d", "e"]
    assert [bool(row["error"]) for row in rows] == [True, True, True, False, True]
    assert [row["sent"] for row in rows] == [None, None, None, None, b'{"image":"text"}']
    names = [row["line"].decode().strip().strip('"') for row in rows]
    images = stored_images(tmp_path / "store")
    assert [images[name] for name in names if name] == [data for data in sent if data]
    assert len(images) == 3  # and not that of an id which another request has
    assert names[-1] == ""


@pytest.mark.parametrize("value", ["text", 3, None, {"b64": 3}])
def test_what_is_no_image(client, value):
    status, answer = client.predict({"instances": [{"image": value}]})
    assert status == 400
    assert 'takes the bytes of an image file, as {"b64": "<base64>"}' in answer["error"]
    (prediction,) = client.post("/predict", [{"image": value}])[1]["predictions"]
    assert prediction["error"].startswith("image: found ")


def test_pairs(patterns_model, files):
    with serving(patterns_model.model_dir) as server, Client(server) as client:
        left, right = files[:2]
        pairs = [{"left": b64(left), "right": b64(right)}, {"left": b64(left), "right": b64(b"")}]
        status, answer = client.predict({"instances": pairs})
        assert (status, [row["error"] for row in answer["predictions"]]) == (200, ["", "right: empty_file"])
        status, answer = client.predict({"inputs": {"left": [b64(left)], "right": [b64(right)]}})
        assert (status, answer["outputs"]["error"]) == (200, [""])
        assert (
            "instances[0]: right: is not in the row" in client.predict({"instances": [{"left": b64(left)}]})[1]["error"]
        )
