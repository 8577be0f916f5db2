import ast
import importlib.util
import pathlib
import subprocess
import sys

import pytest

import jaxformer

PACKAGE = pathlib.Path(jaxformer.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Which parts of the package each part may import (imports point down only, siblings do
# not import each other, errors and config are leaves, text takes plain arguments).
_LEAVES = {"errors", "config", "memory", "storage", "stopping"}
_MODELS = _LEAVES | {"functional", "modules", "models", "text"}
_USES = ("training", "inference", "interop", "viz", "testing")
MAY_IMPORT = {
    # For type checkers: a test below checks that importing the package loads none of these.
    "__init__": _MODELS | set(_USES) | {"runs", "planning", "sweeps", "cli"},
    "__main__": {"stopping", "memory", "cli"},
    "stopping": set(),
    "errors": set(),
    "config": {"errors", "storage"},
    "functional": {"errors"},
    "memory": set(),
    "accelerators": {"errors", "config"},
    "flops": {"errors", "op_names"},
    "hlo": set(),
    "op_names": set(),
    "programs": {"storage"},
    "storage": {"errors"},
    "text": {"errors", "storage"},
    "modules": _LEAVES | {"functional"},
    "models": _LEAVES | {"functional", "modules"},
    **dict.fromkeys(_USES, _MODELS),
    "training": _MODELS | {"accelerators", "flops", "hlo", "op_names", "programs"},
    "runs": _MODELS | {"programs"} | set(_USES),
    "planning": _MODELS | {"accelerators", "flops", "hlo", "op_names", "runs", "training"},
    "sweeps": _MODELS | {"programs", "runs", "training"},
    "cli": _LEAVES | {"planning", "runs", "sweeps", "text", "training", "viz"},
}
# The other packages that a part may import; all, where it is not listed.
MAY_IMPORT_OUTSIDE = {
    "__init__": set(),
    "__main__": set(),
    "stopping": set(),
    "errors": set(),
    "config": set(),
    "memory": set(),
    # All but filelock only for paths in buckets.
    "storage": {"etils", "filelock", "fsspec"},
    # tokamax on NVIDIA GPUs only, if it is installed.
    "functional": {"jax", "einops", "chex", "numpy", "tokamax"},
}


def imports(source, package):
    """Lists (line, dotted name) of everything a file of `package` imports, functions included."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            parents = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            names += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            names.append((node.lineno, node.args[0].value))
    return names


def violations(source, path):
    """Lists what a file of the package, such as jaxformer/text/synthetic.py, may not import."""
    path = pathlib.PurePosixPath(path)
    part = path.parts[1].removesuffix(".py")
    if part not in MAY_IMPORT:
        return [f"{path}: {part} is not a part of the package that the design names"]
    allowed = MAY_IMPORT[part] | {part}
    mistakes = []
    for line, name in imports(source, ".".join(path.parts[:-1])):
        top, _, rest = name.partition(".")
        below = rest.split(".")[0]
        if top == "jaxformer":
            if below not in allowed | {"__version__"}:
                mistakes.append(f"{path}:{line}: {part} may not import {name}")
        elif part in MAY_IMPORT_OUTSIDE and top not in sys.stdlib_module_names | {"__future__"}:
            if top not in MAY_IMPORT_OUTSIDE[part]:
                mistakes.append(f"{path}:{line}: {part} may not import {name}")
    return mistakes


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path):
    inside = pathlib.PurePosixPath(PACKAGE.name, *path.relative_to(PACKAGE).parts)
    assert violations(path.read_text(encoding="utf-8"), inside) == []


# The folders inside a folder of the package, and which of the others each may import. None imports
# the files beside them.
ROOMS = {
    "interop": {
        "tokenizers": set(), "conversion": {"safetensors"}, "families": {"conversion"},
    },
    "runs": {
        "data": set(), "folder": {"data"}, "text_models": {"data", "folder"},
        "tasks": {"data", "folder", "text_models"},
        "weights": {"data", "folder", "text_models", "tasks"},
    },
    "text": {
        "tokenizers": set(), "store": set(), "batches": {"store"},
        "sources": {"tokenizers", "store"}, "tables": {"tokenizers", "store", "sources"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "room"), [(part, room) for part, rooms in ROOMS.items() for room in rooms]
)
def test_rooms_import_only_those_below(part, room):
    allowed = {f"jaxformer.{part}.{name}" for name in (room, *ROOMS[part][room])}
    for path in (PACKAGE / part / room).rglob("*.py"):
        for line, name in imports(path.read_text(encoding="utf-8"), f"jaxformer.{part}.{room}"):
            if name.startswith(f"jaxformer.{part}"):
                assert ".".join(name.split(".")[:3]) in allowed, f"{path}:{line}"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        # Each way to import.
        ("functional/masks.py", "import flax"),
        ("functional/masks.py", "from flax import linen as nn"),
        ("functional/masks.py", "from jaxformer.config import ModelConfig"),
        ("functional/masks.py", "from ..modules import block"),
        ("functional/masks.py", "import jaxformer"),
        ("functional/masks.py", "def f():\n    import jaxformer.modules.block as block"),
        ("functional/masks.py", "import importlib\nimportlib.import_module('flax.linen')"),
        # Each kind of part: below another, beside it, and one that imports little.
        ("modules/block.py", "from jaxformer.models import decoder"),
        ("text/batches.py", "from jaxformer.config import DataConfig"),
        ("training/loop.py", "from ..viz import figures"),
        ("config.py", "import numpy"),
        ("extras/anything.py", ""),  # no part
    ],
)
def test_import_rules_catch(path, source):
    assert len(violations(source, f"jaxformer/{path}")) == 1


def test_importing_loads_little_that_is_not_used_yet():
    # A fresh interpreter: this one has everything loaded.
    program = """
import sys
import jaxformer
print(*sorted(name for name in sys.modules if name.startswith("jaxformer.")))
import jaxformer.config, jaxformer.errors
print(*sorted({"jax", "numpy"} & set(sys.modules)))
import jaxformer.functional
heavy = {"flax", "optax", "orbax", "grain", "tokenizers", "rich", "matplotlib"}
print(*sorted(heavy & set(sys.modules)))
import jaxformer.runs, jaxformer.sweeps
print(*sorted({"torch", "matplotlib", "grain"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n") == ["", "", "", "", ""]


def test_package_lists_submodules_that_exist_and_imports_them_on_use():
    for name in jaxformer.__all__:
        assert name == "__version__" or importlib.util.find_spec(f"jaxformer.{name}"), name
    assert set(jaxformer.__all__) <= set(dir(jaxformer))
    assert jaxformer.functional.Causal().array(1, 1).all()
    with pytest.raises(AttributeError, match="has no attribute 'transformer'"):
        _ = jaxformer.transformer


# A function that maps itself over a mesh that it is given; it lays out no devices.
MAY_NAME = {
    "functional/attention/ring/sharded_ring.py": {"shard_map", "Mesh"},
    "functional/attention/sharded.py": {"shard_map"},
    "functional/experts/devices.py": {"shard_map"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_parallel_names_how_devices_are_laid_out(path):
    inside = path.relative_to(PACKAGE).as_posix()
    if inside.startswith("training/parallel/"):
        return
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    layout = {"pmap", "shard_map", "Mesh", "make_mesh", "NamedSharding", "SingleDeviceSharding",
              "process_index", "process_count"}  # fmt: skip
    assert names & layout == MAY_NAME.get(inside, set())


def test_arrays_are_never_unpickled():
    """Other ways to make code of data are banned by ruff."""
    for path in FILES:
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path
