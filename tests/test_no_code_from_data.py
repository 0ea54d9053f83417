"""Nothing that is read is ever run: no pickles, no YAML that builds objects, no eval, and no name that a file gives.

Names in files reach three places where they could do harm: an import, a path, and the loading of a graph. The guards:

- An import: `preprocessing_fn` of a manifest is never imported. `model` of a `model.json` (`evaluate`, `verify`,
  `promote`, a training that resumes) is imported with `--trust`, or where the command line names the same function.
  Likewise the network of a `backbone`, whose `path` is in `model.json`.
- A path: those of a manifest are relative and without `..` (`schemas.dataset.manifest.Inside`), and no link is followed
  (`schemas.dataset.read_checked`, `schemas.exports.notes`, `compare_and_swap.look`); `best.json`, promotions and
  versions name numbers; notes of labels name files of their folder; the result of a submitted job, files of its run.
  Inputs in a manifest lie anywhere; they are read only if they are, by their digest, what the dataset holds.
- A graph: `OpenDataset.graphs_dir` and `check_graph` (see `trainer/export/test_trust.py`).
"""

from __future__ import annotations

import ast
import contextlib
import shutil
import sys
from pathlib import Path

import pytest

from beam_jobs import preprocess
from millrace import promote
from millrace.label import command as label
from millrace.store.database import connect
from tests.support.csv_datasets import LATE
from tests.support.dataset_faults import write_json
from tests.support.stored_requests import late_batch, write_store
from trainer import evaluate, task, verify

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path for package in ("schemas", "beam_jobs", "trainer", "millrace") for path in (ROOT / package).rglob("*.py")
)

# The first sends the processes that it starts their work, by their standard input; these write the second's files to
# the folder of the job, which is its user's alone.
OWN_CHILDREN = {"beam_jobs/rows/children.py", "schemas/profile/profiles.py"}
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle", "code"}
NAMES = {"eval", "exec", "compile", "__import__"}
YAML = {"load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all"}
METHODS = {"PickleCoder", "DillCoder", "load_model", "read_pickle"}
OWN_JSON = {  # that reader itself; and with hooks that it lacks, a request's body
    "schemas/storage/json_files.py",
    "millrace/serve/bodies.py",
}
KEYWORDS = {"allow_pickle", "shell", "unsafe"}  # where they are given as True


def dangers(tree: ast.AST) -> list[str]:
    """What in a module can run what it reads."""
    risks = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                risks += [f"import {name.name}" for name in names if name.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                risks.append(f"from {module} import")
            case ast.Call(func=ast.Name(id=name)) if name in NAMES:
                risks.append(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr=name), args=args, keywords=keywords):
                loader = [k.value for k in keywords if k.arg == "Loader"] or args[1:]
                safe = (bool(loader) and "Safe" in ast.unparse(loader[0])) or _derives_from_safe(tree, loader)
                if name in YAML and not safe:
                    risks.append(f"yaml.{name}")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="json"), attr="load" | "loads" as name)):
                risks.append(f"json.{name}")  # which recurses; `schemas.storage.json_files` does not
            case ast.Call(func=ast.Attribute(attr="recv"), args=[]):
                risks.append("recv")  # of multiprocessing, which unpickles
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                risks.append(name)
            case ast.keyword(arg=str(name), value=ast.Constant(value=True)) if name in KEYWORDS:
                risks.append(f"{name}=True")
    return risks


def _derives_from_safe(tree: ast.AST, loader: list[ast.expr]) -> bool:
    """Whether a loader is a class of the module that derives from a safe one."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    definition = classes.get(ast.unparse(loader[0])) if loader else None
    return definition is not None and any("Safe" in ast.unparse(base) for base in definition.bases)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_executes_what_it_reads(path):
    name = str(path.relative_to(ROOT))
    allowed = {"json.loads": OWN_JSON, "import pickle": OWN_CHILDREN}
    own = {danger for danger, files in allowed.items() if name in files}
    assert set(dangers(ast.parse(path.read_text()))) - own == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pickle", ["import pickle"]),
        ("from dill import loads", ["from dill import"]),
        ("np.load(f, allow_pickle=True)", ["allow_pickle=True"]),
        ("np.load(f)", []),
        ("yaml.load(text)", ["yaml.load"]),
        ("yaml.load(text, Loader=yaml.Loader)", ["yaml.load"]),
        ("yaml.load(text, Loader=yaml.SafeLoader)", []),
        ("class L(yaml.SafeLoader): pass\nyaml.load(text, Loader=L)", []),
        ("yaml.safe_load(text)", []),
        ("eval(text)", ["eval"]),
        ("session.eval(text)", []),
        ("json.loads(text)", ["json.loads"]),
        ("json.load(file)", ["json.load"]),
        ("subprocess.run(x, shell=True)", ["shell=True"]),
        ("tf.keras.models.load_model(x)", ["load_model"]),
    ],
)
def test_this_test_finds_what_it_looks_for(source, expected):
    assert dangers(ast.parse(source)) == expected


@pytest.fixture
def folder(parcels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset and a model of a stranger, and on the Python path a module `evilmod` that tells when it is imported."""
    shutil.copytree(parcels, tmp_path, dirs_exist_ok=True)
    (tmp_path / "evilmod.py").write_text("raise RuntimeError('evilmod was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OF_MODEL = ["--data_dir", "data", "--model_dir", "model", "--saved_model"]


def test_a_function_that_a_manifest_names_is_not_imported(folder):
    write_json(folder / "data" / "manifest.json", lambda manifest: manifest.update(preprocessing_fn="evilmod:fn"))
    (folder / "new.csv").write_text((folder / "raw.csv").read_text() + "\n")
    argv = ["--append_to", "data", "--input", "new.csv", "--max_rejects", "9", "--trust", "--quiet"]
    assert preprocess.main(argv) == 0
    assert "evilmod" not in sys.modules


def test_the_function_is_no_option_of_an_append(folder, capsys):
    assert preprocess.main(["--append_to", "data", "--input", "raw.csv", "--preprocessing_fn", "evilmod:fn"]) == 2
    assert "--preprocessing_fn: not with --append_to" in capsys.readouterr().err


@pytest.mark.parametrize("main", [verify.main, evaluate.main])
def test_a_function_that_a_models_file_names_is_not_imported(folder, main, capsys):
    (export,) = (path for path in (folder / "model/export/best").iterdir() if path.is_dir())
    write_json(folder / "model" / "model.json", lambda document: document["current"].update(model="evilmod:fn"))
    assert main([*OF_MODEL, str(export)]) == 2
    err = capsys.readouterr().err
    assert "evilmod" not in sys.modules
    assert "model/model.json: names the model 'evilmod:fn'" in err
    assert "give --trust" in err
    with pytest.raises(RuntimeError, match="evilmod was imported"):
        main([*OF_MODEL, str(export), "--trust"])


@pytest.mark.parametrize("main", [verify.main, evaluate.main])
def test_a_network_that_a_models_file_names_is_not_read(folder, main, capsys):
    (export,) = (path for path in (folder / "model/export/best").iterdir() if path.is_dir())
    network = {"path": "/elsewhere/evil.h5", "pixels": "0..1"}
    write_json(
        folder / "model" / "model.json", lambda document: document["current"].update(model="backbone", hparams=network)
    )
    assert main([*OF_MODEL, str(export)]) == 2
    message = "model/model.json: names the file /elsewhere/evil.h5, from which a network would be built. If you trust"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("model", "flag"), [("evilmod:fn", "--model evilmod:fn"), ("backbone", "--hparams path=PATH")])
def test_a_training_that_resumes_runs_nothing_that_a_models_file_names(folder, model, flag, capsys):
    (folder / "model/checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    network = {"path": "/elsewhere/evil.h5", "pixels": "0..1"} if model == "backbone" else {}
    write_json(
        folder / "model" / "model.json", lambda document: document["current"].update(model=model, hparams=network)
    )
    assert task.main(["--data_dir", "data", "--model_dir", "model"]) == 2
    assert f"give --trust, or {flag}." in capsys.readouterr().err
    assert "evilmod" not in sys.modules


@pytest.mark.parametrize("name", ["../../../elsewhere", "/elsewhere", "", "\u0661\u0662", None, [1]])
def test_the_best_export_is_a_number_of_its_folder(folder, name, capsys):
    write_json(folder / "model/export/best/best.json", lambda document: document.update(export=name))
    for command in (
        lambda: evaluate.main(["--data_dir", "data", "--model_dir", "model"]),
        lambda: promote.main(["--from", "model/export/best", "--to", "served"]),
    ):
        assert command() == 1
        assert "best/best.json: names the export" in capsys.readouterr().err


def test_a_store_names_no_file_that_labels_are_written_to_unasked(tmp_path, capsys):
    write_store(tmp_path / "store", LATE.encode(), late_batch(["a"]))
    existing_file = tmp_path / "kept.csv"
    existing_file.write_text("kept")
    with contextlib.closing(connect(str(tmp_path / "store"))) as database:
        database.execute("INSERT INTO outputs (path, last) VALUES (?, 1)", (str(existing_file),))
        database.execute("""UPDATE requests SET label = '["yes"]', output = 1""")
    (tmp_path / "labels.csv").write_text("_id,late\na,yes\n")
    argv = [str(tmp_path / "store"), str(tmp_path / "labels.csv"), "--output", str(tmp_path / "out")]
    assert label.main(argv) == 2
    assert (
        f"was interrupted while it handed rows to {existing_file}; run it again with --output"
        in capsys.readouterr().err
    )
    assert existing_file.read_text() == "kept"
