import ast
import pathlib
import shlex

import pytest

from jaxformer.errors import CheckpointError
from jaxformer.interop.safetensors import open_tensors
from jaxformer.interop.safetensors.other_formats import download_command, no_safetensors
from jaxformer.storage import some

MODEL = pathlib.Path("models/gpt2")


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
    ("name", "library", "option"),
    [("flax_model.msgpack", "flax", "from_flax"), ("tf_model.h5", "tensorflow", "from_tf")],
)
def test_weights_of_jax_and_tensorflow_are_refused_with_their_command(name, library, option):
    message = no_safetensors(MODEL, [name, "rng_state.pth"], "AutoModel")
    assert f"got {name}; convert it with transformers 4 and {library}: python -c" in message
    assert f'M.from_pretrained("models/gpt2", {option}=True).save' in message


@pytest.mark.parametrize("folder", ['it\'s "mine" $HOME', "a\nb\\n", "ಕನ್ನಡ"])
def test_command_fits_any_folder(folder):
    message = no_safetensors(pathlib.Path(folder), ["pytorch_model.bin"], "AutoModel")
    python, flag, program = shlex.split(message.partition("convert it: ")[2])
    assert (python, flag) == ("python", "-c")
    texts = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    assert sorted(texts) == [folder, f"{folder}-safetensors"]
    assert shlex.split(download_command(pathlib.Path(folder)))[-1] == folder


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["a.PT", "b.pth", "c.ckpt", "d.bin", "e"], "got a.PT, b.pth, c.ckpt and 1 more; a pickle"),
        (["one\n.bin"], r"got 'one\n.bin'; a pickle can run arbitrary code, so it is not loaded; "),
        (["adapter_model.safetensors"], "got adapter_model.safetensors; rename the file of"),
        (["config.json"], "got no weights; download the model into it: hf download OWNER/MODEL "),
        ([], "--local-dir models/gpt2"),
    ],
)
def test_folder_without_a_model_is_told_what_it_has(entries, message):
    assert message in no_safetensors(MODEL, entries, "AutoModel")


def test_some_names_all_of_few():
    assert some({"b": 1}) == "b" and some(["a", "b", "c"]) == "a, b, c"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "but does not exist; check the path, or download a model: hf"),
        (lambda path: path.write_text(""), "got a file; pass the folder that contains it"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        (lambda path: path.mkdir(), "got no weights; download the model into it"),
    ],
)
def test_folder_that_is_none_is_one_clear_error(tmp_path, make, message):
    make(tmp_path / "model")
    with pytest.raises(CheckpointError, match=message):
        open_tensors(tmp_path / "model")


def test_weights_of_another_format_are_refused_with_the_class_that_was_given(tmp_path):
    (tmp_path / "pytorch_model.bin").write_text("")
    with pytest.raises(CheckpointError, match="import AutoModelForCausalLM as M; "):
        open_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="import AutoModelForSeq2SeqLM as M; "):
        open_tensors(tmp_path, auto_class="AutoModelForSeq2SeqLM")
