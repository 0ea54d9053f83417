"""The walls of the house: which room imports which, what a room shows of itself, and what is left alone elsewhere."""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.formats import ROW_FORMATS

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "beam_jobs", "trainer", "millrace")

# From the ground up: a room imports only from those in lines above its own, of its own package or of `schemas`;
# `millrace` from all.
ORDER = """
    schemas.errors
    schemas.interrupts schemas.concurrency
    schemas.libraries schemas.retries
    schemas.source_distribution schemas.options schemas.streams
    schemas.arguments schemas.display schemas.storage
    schemas.scratch
    schemas.command
    schemas.spec schemas.graphs schemas.samples schemas.rejects
    schemas.rows
    schemas.reject_counts
    schemas.csv
    schemas.formats
    schemas.images
    schemas.dataset
    schemas.profile
    schemas.predictions schemas.comparison schemas.init
    schemas.exports
    schemas.report
    beam_jobs.core
    beam_jobs.profiles
    beam_jobs.transform
    beam_jobs.records
    beam_jobs.engines
    beam_jobs.rows beam_jobs.images
    beam_jobs.runs
    beam_jobs.predicting
    beam_jobs.dry_run beam_jobs.raw_files
    beam_jobs.preprocess beam_jobs.compare beam_jobs.predict
    beam_jobs.job beam_jobs.flex_template
    trainer.estimator trainer.spec
    trainer.strategies
    trainer.start
    trainer.images
    trainer.data trainer.models
    trainer.model_dir
    trainer.export
    trainer.evaluation
    trainer.predicting
    trainer.promotion
    trainer.loop
    trainer.task trainer.predict trainer.verify trainer.evaluate
    trainer.replica
    millrace.values
    millrace.dataset millrace.model
    millrace.store
    millrace.serve millrace.label millrace.promote millrace.tune
    millrace.api millrace.cli millrace.submit
    millrace.completion millrace.__main__
"""
LEVELS = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def modules(*packages: str) -> dict[str, Path]:
    return {module_name(path): path for package in packages for path in sorted((ROOT / package).rglob("*.py"))}


def top_level_imports(path: Path, *, outside_functions: bool = False) -> set[str]:
    """The packages that a file imports anywhere in it, or as soon as it is imported itself."""
    names = set()
    for node in parsed(path).body if outside_functions else ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def imported(path: Path, among: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """(module, name) of every import of our own modules, wherever it stands; the name is '' of a module itself."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in among)
        elif isinstance(node, ast.ImportFrom) and node.module in among:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full, "") if full in among else (node.module, alias.name)


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        (
            "schemas",
            {"beam_jobs", "trainer", "millrace", "apache_beam", "tensorflow", "tensorflow_transform", "tfx_bsl"},
        ),
        ("beam_jobs", {"trainer", "millrace", "tensorflow_estimator"}),
        ("trainer", {"beam_jobs", "millrace", "apache_beam"}),
        ("millrace", {"apache_beam", "tensorflow_estimator"}),
    ],
)
def test_no_package_imports_what_it_must_not(package, forbidden):
    files = modules(package).values()
    imports = {str(f.relative_to(ROOT)): top_level_imports(f) & forbidden for f in files}
    # Stored records are decoded in C++: a quarter of a second to import, and neither TensorFlow nor Beam with it.
    for decodes in ("schemas/dataset/check_records.py", "schemas/dataset/records.py"):
        imports[decodes] = imports.get(decodes, set()) - {"tfx_bsl"}
    for path in (path for path in imports if path.startswith("schemas/exports/")):  # models run there, for all packages
        imports[path] -= {"tensorflow", "tfx_bsl"} - top_level_imports(ROOT / path, outside_functions=True)
    assert {path: names for path, names in imports.items() if names} == {}


def test_one_room_knows_the_estimator_package():
    users = {str(f.parent) for f in modules("trainer").values() if "tensorflow_estimator" in top_level_imports(f)}
    assert users <= {str(ROOT / "trainer" / "estimator")}


def test_rooms_import_downwards_only():
    among = modules(*PACKAGES)
    wrong = {
        f"{module} imports {other}"
        for module, path in among.items()
        for other, _ in imported(path, among)
        if "." in module and room_of(other) != room_of(module) and LEVELS[room_of(other)] >= LEVELS[room_of(module)]
    }
    assert wrong == set()


def test_a_room_is_entered_by_what_it_shows():
    """Other rooms import the modules and names that stand in `__all__` of its `__init__.py`, which says what it is."""
    among = modules(*PACKAGES)
    wrong = set()
    for module, path in among.items():
        for other, name in imported(path, among):
            room = room_of(other)
            entered = other.removeprefix(room).removeprefix(".") or name
            if room == room_of(module) or among[room].name != "__init__.py" or not entered:
                continue
            if entered not in importlib.import_module(room).__all__:
                wrong.add(f"{module} imports {entered} of {room}")
    assert wrong == set()
    rooms = [path for path in among.values() if path.name == "__init__.py"]
    assert [str(path) for path in rooms if not ast.get_docstring(parsed(path))] == []


def test_who_reads_rows_knows_no_format_of_them():
    """Jobs, replays, predictions and checks go through `schemas.formats`; what judges cells and streams is shared."""
    formats = {room_of(type(form).__module__) for form in ROW_FORMATS.values()} | {"schemas.formats"}
    formats.add("schemas.init")  # finds out how CSV is written, before there is a schema that says so
    among = modules(*PACKAGES)
    shared = {f"schemas.csv.{name}" for name in ("stream", "values")}
    wrong = {
        f"{module} imports {other}"
        for module, path in among.items()
        if room_of(module) not in formats
        for other, name in imported(path, among)
        if room_of(other) == "schemas.csv" and (f"{other}.{name}" if other == "schemas.csv" else other) not in shared
    }
    assert wrong == set()


def test_no_imports_go_round_in_a_circle():
    among = modules(*PACKAGES, "benchmarks", "tools")
    graph = {module: {other for other, _ in imported(path, among)} - {module} for module, path in among.items()}
    left = dict(graph)
    while free := [module for module, imports in left.items() if not imports & left.keys()]:
        for module in free:
            del left[module]
    assert sorted(left) == []


# Python's own names that begin with an underscore and are public.
PUBLIC = {"_replace", "_asdict", "_fields", "_exit"}
HOOKS = {"excepthook", "unraisablehook", "tempdir", "stderr"}  # which Python's documentation has one replace


BY_NAME = {"import_module", "getattr", "setattr", "delattr", "patch"}  # functions that are given names as text


def is_private(dotted: str) -> bool:
    """Whether a name of another library, such as `tensorflow.python.util` or `_api`, is not public."""
    parts = dotted.split(".")
    return parts[:2] == ["tensorflow", "python"] or any(re.match(r"_(?!_)", part) for part in parts)


def private_text(path: Path) -> Iterator[int]:
    """Lines that name as text what another library keeps to itself, or import it as a module."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] not in PACKAGES]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in BY_NAME:
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        else:
            continue
        if any(is_private(name) for name in names):
            yield node.lineno


def private_names(path: Path) -> Iterator[int]:
    """Lines that read another library's private names."""
    tree = parsed(path)
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    own = {a.asname or a.name for n in imports if (n.module or "").split(".")[0] in PACKAGES for a in n.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr) and node.attr not in PUBLIC:
            if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", *own}):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in (*PACKAGES, "__future__"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            if any(re.match(r"_(?!_)", name) for name in names) or re.match(r"tensorflow\.python\b", node.module or ""):
                yield node.lineno


def test_other_libraries_are_left_alone():
    """No private names, and nothing is put in their place: but for the Estimator's shims, and lines that say why."""
    wrong = []
    for module, path in modules(*PACKAGES).items():
        if module == "trainer.estimator.shims":
            continue
        with path.open("rb") as file:
            why = {t.start[0] for t in tokenize.tokenize(file.readline) if t.string.startswith("# private: ")}
        wrong += [f"{path.relative_to(ROOT)}:{line}" for line in private_names(path) if line not in why]
        if room_of(module) != "trainer.estimator":
            wrong += [f"{path.relative_to(ROOT)}:{line}" for line in private_text(path) if line not in why]
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                wrong += [
                    f"{path.relative_to(ROOT)}:{node.lineno} replaces {ast.unparse(target)}"
                    for target in targets
                    if isinstance(target, ast.Attribute)
                    and is_module(target.value, path)
                    and target.attr not in HOOKS
                    and node.lineno not in why
                ]
    assert wrong == []


def is_module(value: ast.expr, path: Path) -> bool:
    """Whether an expression is an imported name of a file, or an attribute of one."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id in imported_names(path)


@functools.cache
def imported_names(path: Path) -> frozenset[str]:
    """The names that a file's imports define."""
    imports = (n for n in ast.walk(parsed(path)) if isinstance(n, ast.Import | ast.ImportFrom))
    return frozenset((alias.asname or alias.name).split(".")[0] for n in imports for alias in n.names)


# They say that a value was found, given or kept, and not what it is.
EMPTY_NAMES = frozenset(
    "found some each given told asked held kept seen known wanted said meant one others".split()  # noqa: SIM905
)


def empty_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines where a variable or a parameter gets such a name. Fields of classes are part of files and flags."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(part.target) for node in classes for part in node.body if isinstance(part, ast.AnnAssign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            name = node.id
        else:
            continue
        if name in EMPTY_NAMES:
            yield node.lineno, name


def test_variables_are_called_by_what_they_hold():
    files = modules(*PACKAGES, "benchmarks", "tools", "tests").values()
    empty = [f"{path.relative_to(ROOT)}:{line} {name}" for path in files for line, name in empty_names(parsed(path))]
    assert empty == []


def test_the_name_of_a_class_stands_once_in_the_project():
    files = modules(*PACKAGES, "benchmarks", "tools").values()
    places = collections.defaultdict(list)
    for path in files:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: lines for name, lines in places.items() if len(lines) > 1} == {}
