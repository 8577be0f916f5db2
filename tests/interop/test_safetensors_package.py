"""Against the packages safetensors, torch and transformers, where they are installed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from jaxformer.errors import CheckpointError
from jaxformer.interop.safetensors import open_tensors, write_tensors
from jaxformer.interop.safetensors.files import read_tensors
from tests.interop.crafted import ARRAYS, lazy, mutated, valid
from tests.interop.hostile import HOSTILE

safetensors = pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")
package = pytest.importorskip("safetensors.torch")

# What the package takes, and is refused here.
STRICTER = (
    r"begin with|occurs twice|the only keys|without a name|got 'F[46]|__metadata__ must|surrogates|"
    r"2\*\*63"
)


def test_package_reads_alike_what_is_accepted_and_refuses_most_of_the_rest(tmp_path):
    def theirs(content):
        try:
            found = safetensors.deserialize(content)
        except safetensors.SafetensorError:
            return None
        return {name: (tuple(one["shape"]), bytes(one["data"])) for name, one in found}

    good = valid()
    contents = [content for content, _ in HOSTILE.values()]
    both = 0
    for content in contents + [mutated(good, seed) for seed in range(2000)]:
        path = tmp_path / "model.safetensors"
        path.unlink(missing_ok=True)  # or some file systems wait for the disk
        path.write_bytes(content)
        found = theirs(content)
        try:
            tensors = read_tensors(path)
        except CheckpointError as error:
            assert found is None or re.search(STRICTER, str(error)), str(error)
        else:
            assert found == {
                name: (one.shape, content[one.begin : one.end]) for name, one in tensors.items()
            }
            both += 1
    assert both > 40


def by_torch(arrays):
    """The arrays as tensors of PyTorch, which has those types of ml_dtypes that NumPy lacks."""
    tensors = {}
    for name, array in arrays.items():
        flat = torch.frombuffer(bytearray(array.tobytes() or b"0"), dtype=torch.uint8)
        kind = getattr(torch, str(array.dtype))
        tensors[name] = flat[: array.nbytes].view(kind).reshape(array.shape)
    return tensors


def test_files_are_byte_for_byte_those_of_the_package(tmp_path):
    package.save_file(by_torch(ARRAYS), tmp_path / "theirs", metadata={"format": "pt"})
    write_tensors(tmp_path, lazy(ARRAYS))
    theirs = (tmp_path / "theirs").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == theirs


def test_package_reads_what_was_written(tmp_path):
    write_tensors(tmp_path, lazy(ARRAYS))
    found = package.load_file(tmp_path / "model.safetensors")
    expected = by_torch(ARRAYS)
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].tolist() == tensor.tolist()


def test_what_the_package_wrote_is_opened(tmp_path):
    package.save_file(by_torch(ARRAYS), tmp_path / "model.safetensors", metadata={"format": "pt"})
    tensors = open_tensors(tmp_path)
    assert set(tensors) == set(ARRAYS)
    for name, array in ARRAYS.items():
        found = tensors[name].read()
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes()


def test_transformers_converts_as_the_error_says_and_loads_what_was_written(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=6, n_head=2, n_layer=2, vocab_size=7, n_positions=5)
    model = transformers.GPT2LMHeadModel(config)
    expected = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    folder = tmp_path / "its model"
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as caught:
        open_tensors(folder)
    command = str(caught.value).partition("convert it: ")[2]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", command], env=os.environ | {"PATH": path}, check=True)
    tensors = open_tensors(f"{folder}-safetensors")
    found = {name: tensor.read() for name, tensor in tensors.items()}
    for name, array in found.items():
        assert array.tobytes() == expected[name].tobytes()
    # Back again, in shards.
    (tmp_path / "ours").mkdir()
    write_tensors(tmp_path / "ours", lazy(found), max_shard_bytes=1000)
    assert (tmp_path / "ours" / "model.safetensors.index.json").exists()
    shutil.copy(folder / "config.json", tmp_path / "ours")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    for name, tensor in loaded.state_dict().items():
        assert tensor.numpy().tobytes() == expected[name].tobytes()
