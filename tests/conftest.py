"""Settings that every test runs under: 8 fake CPU devices, and no silent broadcasting.

And which tier a test belongs to, by its folder and its cost, and the runs that several files of
tests look at: (run folder, what was printed).
"""

import atexit
import gc
import importlib.metadata
import os
import shutil
import tempfile

# Compiling is what costs: less of it is done on the code, which is small and runs once.
_FAST_COMPILING = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
_FAST_COMPILING += " --xla_cpu_parallel_codegen_split_count=1"  # one module of LLVM a program
if importlib.metadata.version("jaxlib") < "0.11":  # which has no such flag, and aborts at it
    _FAST_COMPILING += " --xla_cpu_use_fusion_emitters=false"

# The first process sets what its workers, and the processes that tests start, inherit. Tokens are
# kept in no folder of the developer's, and programs only where JAX_COMPILATION_CACHE_DIR says so.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FAST_COMPILING}"
    _folder = tempfile.mkdtemp(prefix="jaxformer-tests-")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{_folder}/programs")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["XDG_CACHE_HOME"] = f"{_folder}/cache"

import jax  # noqa: E402
import pytest  # noqa: E402

from tests.costs import ROOM, CostRecorder, items_beyond  # noqa: E402

gc.set_threshold(50_000)  # tracing and collecting make many objects: 5 % of the time

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_traceback_in_locations_limit", 0)  # which nothing reads, and lowering writes

# What tests cost is said by where they are: functions and files, compiled models, whole runs and
# commands, and processes that run scripts, browsers and documents.
TIERS = {
    "unit": ("config", "functional", "interop", "storage", "testing", "text"),
    "model": ("inference", "models", "modules", "planning", "training", "viz"),
    "run": ("cli", "runs", "seams", "sweeps"),
    "system": ("docs", "examples", "experiments"),
}
TIER_OF = {folder: tier for tier, folders in TIERS.items() for folder in folders}
DEAREST_FIRST = {tier: place for place, tier in enumerate(reversed(TIERS))}


def pytest_addoption(parser):
    parser.addoption("--record-costs", action="store_true", help="write tests/costs.tsv")
    parser.addoption(
        "--room", type=float, help="leave out cases of functions beyond these seconds of a core"
    )


def pytest_configure(config):
    """Lets workers take files in the order of collection, not by their number of tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if config.option.record_costs:
        config.pluginmanager.register(CostRecorder())


def tier_of(item):
    """The tier of a test, by its folder."""
    return TIER_OF.get(item.nodeid.removeprefix("tests/").partition("/")[0], "unit")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config, items):
    """Marks each test with its tier, and dear ones as thorough unless they are named.

    Workers begin with the dearest tier, so that none has a long file left when the others end.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: DEAREST_FIRST[tier_of(item)])
    for item in items:
        item.add_marker(tier_of(item))
    if any("::" in argument for argument in config.args):
        return
    for item in items_beyond(items, ROOM):
        item.add_marker("thorough")
    if config.option.room is not None:
        left_out = {*items_beyond(items, config.option.room, every_function=True)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def translation_run(tmp_path_factory):
    from tests.runs import test_translation, tiny

    return tiny.share(
        tmp_path_factory,
        "translation",
        lambda folder: tiny.finish(test_translation.full_config(folder)),
    )


@pytest.fixture(scope="session")
def classification_run(tmp_path_factory):
    from tests.runs import test_classification, tiny

    def train(folder):
        return tiny.finish(
            test_classification.config(folder, training=test_classification.TRAINING)
        )

    return tiny.share(tmp_path_factory, "classification", train)


@pytest.fixture(scope="session")
def masked_run(tmp_path_factory):
    from tests.runs import test_masked, tiny

    return tiny.share(
        tmp_path_factory, "masked", lambda folder: tiny.finish(test_masked.full_config(folder))
    )


@pytest.fixture(scope="session")
def emulator():
    """Buckets on this machine, which gs:// means while a test uses them."""
    from tests.emulator import Emulator

    with Emulator().running() as emulator:
        yield emulator


@pytest.fixture
def bucket(emulator, monkeypatch):
    """Path of an empty bucket."""
    from jaxformer.storage import as_path

    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(emulator, "fault", emulator.fault)  # undone at the end
    return as_path(f"gs://{emulator.add_bucket()}")


@pytest.fixture(scope="session")
def hub_on_this_machine():
    """A Hugging Face Hub, and its URL."""
    from tests.hub import Hub

    hub = Hub()
    with hub.running() as url:
        yield hub, url


@pytest.fixture
def hub(hub_on_this_machine, monkeypatch):
    """The Hub that huggingface_hub asks; each test has repositories of its own."""
    from huggingface_hub import constants

    hub, url = hub_on_this_machine
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    return hub


@pytest.fixture(scope="module", autouse=True)
def _drop_compiled_programs():
    """Frees what a file has compiled: of all together Linux would not allow the memory maps."""
    yield
    jax.clear_caches()
