"""Which graphs may be loaded: those that the manifest names, unchanged, and nothing beside them."""

from __future__ import annotations

import hashlib

import pytest

from schemas import storage
from schemas.dataset.manifest import File, Manifest
from schemas.dataset.opening import check_graphs, checksums, sha256
from schemas.errors import MillraceError

RUN = "20261121T074500Z-3f2a"
FILES = {
    "transform_fn/saved_model.pb": b"graph",
    "transform_fn/assets/words": b"a\nb\n",
    "ingest_fn/saved_model.pb": b"i",
}


@pytest.fixture
def manifest(data_dir) -> Manifest:
    """Graphs in a dataset directory, local and gs://, and the manifest that names them."""
    for name, content in FILES.items():
        storage.write_bytes(f"{data_dir}/{RUN}/{name}", content)
    storage.write_bytes(f"{data_dir}/{RUN}/schema.yaml", b"no part of a graph")
    files = [File(path=f"{RUN}/{n}", bytes=len(c), sha256=hashlib.sha256(c).hexdigest()) for n, c in FILES.items()]
    return Manifest.model_construct(run=RUN, files=tuple(files))


def test_as_they_were_written(data_dir, manifest):
    check_graphs(data_dir, manifest)


@pytest.mark.parametrize("name", FILES)
def test_changed(data_dir, manifest, name):
    storage.write_bytes(f"{data_dir}/{RUN}/{name}", FILES[name][:-1] + b"!")
    with pytest.raises(MillraceError, match=rf"{name}: was changed: its SHA-256 is .*It is not loaded"):
        check_graphs(data_dir, manifest)


@pytest.mark.parametrize("name", FILES)
def test_missing(data_dir, manifest, name):
    storage.delete(f"{data_dir}/{RUN}/{name}")
    with pytest.raises(MillraceError, match=rf"{name}: missing, but manifest\.json names it"):
        check_graphs(data_dir, manifest)


@pytest.mark.parametrize("name", ["transform_fn/saved_model.cpb", "transformed_metadata/v1-json/schema.json"])
def test_added(data_dir, manifest, name):
    """TensorFlow takes a `saved_model.cpb` before a `saved_model.pb`."""
    storage.write_bytes(f"{data_dir}/{RUN}/{name}", b"x")
    with pytest.raises(MillraceError, match=rf"{name}: is not named by manifest\.json"):
        check_graphs(data_dir, manifest)


def test_checksums(data_dir, manifest):
    found = checksums(f"{data_dir}/{RUN}/transform_fn", exclude=["assets/words"])
    assert found == {"saved_model.pb": hashlib.sha256(b"graph").hexdigest()}


def test_a_file_larger_than_what_is_read_at_once(tmp_path):
    content = bytes(range(256)) * 10_000
    (tmp_path / "large").write_bytes(content)
    assert sha256(str(tmp_path / "large")) == hashlib.sha256(content).hexdigest()
