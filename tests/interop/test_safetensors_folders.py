import ast
import json
import os
import pathlib
import shlex

import numpy as np
import pytest
from safetensors import safe_open

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.interop.safetensors import no_safetensors, open_tensors, write_tensors
from tests.interop.crafted import ARRAYS, lazy, valid

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
MODEL = pathlib.Path("models/gpt2")


def require_equal(tensors, arrays):
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert (tensors[name].shape, tensors[name].dtype) == (array.shape, array.dtype)
        assert tensors[name].read().tobytes() == array.tobytes()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def sharded(tmp_path):
    """A folder with tensors a and b in the first shard, and c in the second."""
    arrays = {name: np.arange(3, dtype=np.float32) for name in "abc"}
    write_tensors(tmp_path, lazy(arrays), max_shard_bytes=24)
    return tmp_path


def change_index(folder, **weight_map):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] |= weight_map
    (folder / INDEX).write_text(json.dumps(index))


def test_tensors_opened_are_the_tensors_written(tmp_path):
    write_tensors(tmp_path, lazy(ARRAYS))
    assert names_in(tmp_path) == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == valid(metadata={"format": "pt"})
    require_equal(open_tensors(str(tmp_path)), ARRAYS)


def test_folder_without_tensors_can_be_written_and_opened(tmp_path):
    write_tensors(tmp_path, {})
    assert open_tensors(tmp_path) == {}


def test_shards_are_filled_in_order_and_named_by_the_index(tmp_path):
    sizes = {"z": 5, "y": 3, "x": 11, "large": 100, "w": 8, "v": 0, "u": 1}
    arrays = {name: np.full(size, 7, np.uint8) for name, size in sizes.items()}
    write_tensors(tmp_path, lazy(arrays), max_shard_bytes=11)
    files = [f"model-0000{n}-of-00004.safetensors" for n in "1234"]
    assert names_in(tmp_path) == [*files, INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": 128}
    numbers = {name: int(file[6:11]) for name, file in index["weight_map"].items()}
    assert numbers == {"z": 1, "y": 1, "x": 2, "large": 3, "w": 4, "v": 4, "u": 4}
    require_equal(open_tensors(tmp_path), arrays)
    for file in files:
        with safe_open(tmp_path / file, "numpy") as shard:
            assert shard.metadata() == {"format": "pt"}


def test_tensor_larger_than_a_shard_leaves_none_empty(tmp_path):
    arrays = {"large": np.ones(9), "small": np.ones(1)}
    write_tensors(tmp_path, lazy(arrays), max_shard_bytes=8)
    assert names_in(tmp_path) == [FIRST, SECOND, INDEX]
    require_equal(open_tensors(tmp_path), arrays)


def test_folder_that_does_not_exist_is_one_clear_error(tmp_path):
    with pytest.raises(StorageError, match="cannot be written: .*No such file"):
        write_tensors(tmp_path / "model", {})


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "5GB", None])
def test_size_of_shards_is_a_positive_integer(tmp_path, size):
    with pytest.raises(ConfigError, match="max_shard_bytes must be a positive integer, got"):
        write_tensors(tmp_path, {}, max_shard_bytes=size)


def test_files_may_be_links_as_in_the_cache_of_the_hub(sharded, tmp_path_factory):
    snapshot = tmp_path_factory.mktemp("cache") / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir()
    for number, name in enumerate((INDEX, FIRST, SECOND)):
        (sharded / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(f"../../blobs/{number}")
    require_equal(open_tensors(snapshot), {name: np.arange(3, dtype=np.float32) for name in "abc"})


def test_index_may_name_the_single_file(tmp_path):
    write_tensors(tmp_path, lazy(ARRAYS))
    index = {"metadata": {}, "weight_map": dict.fromkeys(ARRAYS, "model.safetensors")}
    (tmp_path / INDEX).write_text(json.dumps(index))
    require_equal(open_tensors(tmp_path), ARRAYS)


def test_two_sets_of_weights_are_refused(sharded):
    (sharded / "model.safetensors").write_bytes(valid({}))
    with pytest.raises(
        CheckpointError, match="one set of weights, got model.safetensors and .*ind"
    ):
        open_tensors(sharded)


def test_other_files_of_a_folder_are_no_matter(sharded):
    for name in ("consolidated.safetensors", "pytorch_model.bin", "config.json"):
        (sharded / name).write_text("?")
    assert set(open_tensors(sharded)) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"d": SECOND}, f"is damaged: {SECOND} must have tensor 'd', which it names; download"),
        ({"a": SECOND}, f"is damaged: {SECOND} must have tensor 'a'"),
        (
            {"d": "x.safetensors"},
            "have the 3 files that .* names, but x.safetensors is missing; do",
        ),
        ({"d": "x.safetensors", "e": "y.safetensors"}, "x.safetensors, y.safetensors are missing"),
        ({"d": "a" * 300 + ".safetensors"}, "is missing; download"),
    ],
)
def test_index_that_does_not_fit_its_files_is_refused(sharded, weight_map, message):
    change_index(sharded, **weight_map)
    with pytest.raises(CheckpointError, match=message):
        open_tensors(sharded)


def test_tensor_is_read_from_the_shard_that_the_index_names(sharded):
    (sharded / SECOND).write_bytes(valid({name: np.zeros(1, np.float32) for name in "ac"}))
    tensors = open_tensors(sharded)
    assert (tensors["a"].shape, tensors["c"].shape) == ((3,), (1,))


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors", "/etc/model.safetensors", "./model-00001-of-00002.safetensors",
        "sub/model.safetensors", "sub\\model.safetensors", "a\0.safetensors", "a\n.safetensors",
        "..", ".safetensors", "", "model.bin", "model.safetensors/", "a.safetensors\n", 5, None, [],
    ],
)  # fmt: skip
def test_index_names_plain_files_of_the_same_folder_only(sharded, name):
    for place in (sharded.parent, sharded / "sub"):
        place.mkdir(exist_ok=True)
        (place / "model.safetensors").write_bytes(valid({"a": np.zeros(2, np.float32)}))
    change_index(sharded, a=name)
    with pytest.raises(
        CheckpointError, match="weight_map must name .safetensors files in the same"
    ):
        open_tensors(sharded)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged: Expecting value"),
        ("{}", "weight_map must contain file names, got None"),
        ('{"weight_map": {}}', "weight_map must contain file names, got {}"),
        ('{"weight_map": ["a.safetensors"]}', "weight_map must contain file names, got ["),
        ('{"weight_map": ' + "[" * 99999, "is damaged: maximum recursion"),
    ],
)
def test_index_that_is_none_is_one_clear_error(sharded, text, message):
    (sharded / INDEX).write_text(text)
    with pytest.raises(CheckpointError) as caught:
        open_tensors(sharded)
    assert message in str(caught.value)


def test_index_that_cannot_be_read_is_one_clear_error(sharded):
    (sharded / INDEX).unlink()
    os.mkfifo(sharded / INDEX)
    with pytest.raises(CheckpointError, match="index.json cannot be read: it is a FIFO"):
        open_tensors(sharded)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_torch_weights_are_refused_with_the_command_that_converts_them(name):
    message = no_safetensors(MODEL, ["config.json", "flax_model.msgpack", name], "AutoModel")
    assert message == (
        f"models/gpt2 must have safetensors files, got {name}; a pickle can run arbitrary code, "
        "so it is not loaded; if you trust it, convert it: python -c 'from transformers import "
        'AutoModel as M; M.from_pretrained("models/gpt2").save_pretrained('
        '"models/gpt2-safetensors")\''
    )


@pytest.mark.parametrize(
    ("name", "option"), [("flax_model.msgpack", "from_flax"), ("tf_model.h5", "from_tf")]
)
def test_weights_of_jax_and_tensorflow_are_refused_with_their_command(name, option):
    message = no_safetensors(MODEL, [name, "rng_state.pth"], "AutoModel")
    assert f"got {name}; convert it with transformers 4: python -c" in message
    assert f'M.from_pretrained("models/gpt2", {option}=True).save' in message


@pytest.mark.parametrize("folder", ['it\'s "mine" $HOME', "a\nb\\n", "ಕನ್ನಡ"])
def test_command_fits_any_folder(folder):
    message = no_safetensors(pathlib.Path(folder), ["pytorch_model.bin"], "AutoModel")
    python, flag, program = shlex.split(message.partition("convert it: ")[2])
    assert (python, flag) == ("python", "-c")
    texts = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    assert sorted(texts) == [folder, f"{folder}-safetensors"]
    message = no_safetensors(pathlib.Path(folder), [], "AutoModel")
    assert shlex.split(message.partition("into it: ")[2])[-1] == folder


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["a.PT", "b.pth", "c.ckpt", "d.bin", "e"], "got a.PT, b.pth, c.ckpt and 1 more; a pickle"),
        (["one\n.bin"], r"got 'one\n.bin'; a pickle can run arbitrary code, so it is not loaded; "),
        (["adapter_model.safetensors"], "of an adapter alone; download adapter_config.json, too"),
        (["other.safetensors"], "got other.safetensors; rename the file of"),
        (["config.json", "a.gguf"], "got a.gguf, for llama.cpp; download the model's original"),
        (["config.json"], "got no weights; download the model into it: hf download OWNER/MODEL "),
        ([], "--local-dir models/gpt2"),
    ],
)
def test_folder_without_a_model_is_told_what_it_has(entries, message):
    assert message in no_safetensors(MODEL, entries, "AutoModel")


def test_weights_of_another_format_are_refused_with_the_class_that_was_given(tmp_path):
    (tmp_path / "pytorch_model.bin").write_text("")
    with pytest.raises(CheckpointError, match="import AutoModelForCausalLM as M; "):
        open_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="import AutoModelForSeq2SeqLM as M; "):
        open_tensors(tmp_path, auto_class="AutoModelForSeq2SeqLM")
