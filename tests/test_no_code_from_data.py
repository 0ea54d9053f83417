"""Nothing that is read is ever run: no pickles, no YAML that builds objects, no eval."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for package in ("schemas", "beam_jobs", "trainer") for path in (ROOT / package).rglob("*.py"))

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle", "code"}
NAMES = {"eval", "exec", "compile", "__import__"}
YAML = {"load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all"}
METHODS = {"PickleCoder", "DillCoder", "load_model", "read_pickle"}
KEYWORDS = {"allow_pickle", "shell", "unsafe"}  # where they are given as True


def dangers(tree: ast.AST) -> list[str]:
    """What in a module can run what it reads."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [f"import {name.name}" for name in names if name.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                found.append(f"from {module} import")
            case ast.Call(func=ast.Name(id=name)) if name in NAMES:
                found.append(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr=name), args=args, keywords=keywords):
                loader = [k.value for k in keywords if k.arg == "Loader"] or args[1:]
                safe = (bool(loader) and "Safe" in ast.unparse(loader[0])) or _derives_from_safe(tree, loader)
                if name in YAML and not safe:
                    found.append(f"yaml.{name}")
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                found.append(name)
            case ast.keyword(arg=str(name), value=ast.Constant(value=True)) if name in KEYWORDS:
                found.append(f"{name}=True")
    return found


def _derives_from_safe(tree: ast.AST, loader: list[ast.expr]) -> bool:
    """Whether a loader is a class of the module that derives from a safe one."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = classes.get(ast.unparse(loader[0])) if loader else None
    return found is not None and any("Safe" in ast.unparse(base) for base in found.bases)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_executes_what_it_reads(path):
    assert dangers(ast.parse(path.read_text())) == []


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
        ("subprocess.run(x, shell=True)", ["shell=True"]),
        ("tf.keras.models.load_model(x)", ["load_model"]),
    ],
)
def test_this_test_finds_what_it_looks_for(source, expected):
    assert dangers(ast.parse(source)) == expected
