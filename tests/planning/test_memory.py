"""Bytes on each device: those of arrays that are there, and of what JAX keeps."""

import dataclasses
import json

import jax
import pytest

from jaxformer.config import (
    AdamWConfig,
    ExpertsConfig,
    LoraConfig,
    MeshConfig,
    TokenizerConfig,
    TrainingConfig,
    load_config,
)
from jaxformer.errors import ConfigError
from jaxformer.planning import memory_needs
from jaxformer.planning.memory import _part_of_model, state_needs
from jaxformer.planning.settings import batch_rows, planned_model
from jaxformer.training import MeshRunner, SingleRunner, TrainState, make_optimizer
from tests.runs import tiny
from tests.small_config import assert_refused, model, small

SIZES = {"data": 1, "fsdp": 2, "expert": 1, "sequence": 1, "tensor": 2}


def config(**changes):
    sizes = {"vocab_size": 22, "max_len": 8, "d_model": 24, "num_heads": 4, "num_layers": 3}
    mesh = MeshConfig(data=1, fsdp=2, tensor=2)
    training = TrainingConfig(steps=7, batch_size=8)
    return small(model=model(**sizes | changes), mesh=mesh, training=training)


def test_state_has_the_bytes_of_arrays_on_a_mesh():
    settings = config()
    planned = planned_model(settings)
    optimizer = make_optimizer(settings.optimizer, planned.config.schedule)
    runner = MeshRunner(settings.mesh, jax.devices()[:4])
    state = runner.create(
        lambda rng: TrainState.create(planned.initializer(rng), optimizer), (jax.random.key(0),)
    )

    def on_one_device(tree):
        return sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(tree))

    needs = memory_needs(settings, SIZES)
    assert needs.parameters == needs.gradients == on_one_device(state.params)
    assert needs.optimizer == on_one_device(state) - on_one_device(state.params)
    assert needs.optimizer > 2 * needs.parameters
    assert needs.total == sum(needs[:4])


def test_average_takes_as_much_as_the_parameters():
    whole = state_needs(config(), SIZES)
    training = dataclasses.replace(config().training, average_decay=0.999)
    needs = state_needs(dataclasses.replace(config(), training=training), SIZES)
    assert needs.average == needs.parameters == whole.parameters
    assert needs.optimizer == whole.optimizer
    assert needs.total == whole.total + needs.average


def test_frozen_weights_have_neither_gradients_nor_a_state_of_the_optimizer():
    whole = memory_needs(config(), SIZES)
    settings = dataclasses.replace(config(), init_from="elsewhere", lora=LoraConfig(rank=2))
    needs = memory_needs(settings, SIZES)
    # Beside three layers' kernels of queries and values: whole on each device.
    matrices = 3 * 2 * (24 * 2 + 2 * 24) * 4
    assert needs.trained == needs.gradients == matrices
    assert needs.optimizer == 2 * matrices + whole.optimizer - 2 * whole.parameters
    assert needs.frozen == whole.parameters
    assert 0 < needs.activations < whole.activations


def test_widths_of_experts_are_split_as_those_of_layers():
    experts = ExpertsConfig(num_experts=5, num_experts_per_token=2, d_ff=26)
    part = _part_of_model(config(d_ff=34, experts=experts).model, 2)
    assert (part.ff_dim, part.experts.d_ff, part.experts.num_experts) == (17, 13, 5)


def test_remat_keeps_the_inputs_of_layers_and_not_the_parameters_again():
    """Ten layers more have ten inputs more, `[B, T, D]` in float32, and ten of each kernel."""

    def activation_bytes(num_layers):
        settings = config(num_layers=num_layers, remat="full", d_model=48)
        return memory_needs(settings, dict.fromkeys(SIZES, 1)).activations

    inputs = 10 * 8 * 8 * 48 * 4
    assert inputs <= activation_bytes(13) - activation_bytes(3) < 1.5 * inputs


def test_activations_shrink_with_remat_and_with_every_split():
    alone = dict.fromkeys(SIZES, 1)
    whole = memory_needs(config(), alone).activations
    for sizes in ({"fsdp": 2}, {"sequence": 2}):
        assert 0.4 < memory_needs(config(), alone | sizes).activations / whole < 0.7
    # Norms and residual sums are on every device of "tensor".
    half, quarter = (memory_needs(config(), alone | {"tensor": n}).activations for n in (2, 4))
    assert 0.4 < half / whole < 0.9 and 0 < quarter < half
    deep = {"num_layers": 11}
    none, dots, full = (
        memory_needs(config(**deep, remat=remat), alone).activations
        for remat in ("none", "dots", "full")
    )
    assert full < dots < none / 1.5


def test_what_only_the_data_says_is_asked_for_by_its_flag():
    word = TokenizerConfig(kind="word")
    assert_refused(lambda: planned_model(small(tokenizer=word)), ["--model.vocab-size"])
    topics = load_config("phrasebook_topics")
    assert_refused(lambda: planned_model(topics), ["number of classes", "--model.num-classes"])
    assert planned_model(small()).config.model.vocab_size == 257  # bytes, and the end of text
    limited = dataclasses.replace(word, vocab_size=99)
    assert planned_model(small(tokenizer=limited)).config.model.vocab_size == 99


def test_batches_of_pairs_have_rows_of_the_longest():
    from jaxformer.config import DataConfig

    pairs = small(
        model=model(architecture="encoder_decoder", vocab_size=5),
        data=DataConfig(source="pairs"),
        optimizer=AdamWConfig(learning_rate=1e-3),
        training=TrainingConfig(steps=7, batch_tokens=13 * 11, accumulate_steps=2),
    )
    assert batch_rows(pairs, 2) == 8
    assert planned_model(pairs).batch_shapes(8)["source_tokens"].shape == (8, 13)
    with pytest.raises(ConfigError, match="batch_tokens=143.*try 208"):
        batch_rows(pairs, 8)


def chat_lines(text):
    chat = [{"role": role, "content": text} for role in ("user", "assistant")]
    return json.dumps({"messages": chat})


@pytest.mark.parametrize(
    ("architecture", "source", "line", "data"),
    [
        ("decoder", "files", str, {}),
        ("decoder", "files", str, {"packing": "documents"}),
        ("decoder", "conversations", chat_lines, {}),
        ("encoder", "files", str, {}),
        ("encoder", "labelled", lambda text: f"{text}\t{text[-1]}", {}),
        ("encoder_decoder", "pairs", lambda text: f"{text}\t{text}", {}),
    ],
)
def test_models_know_the_arrays_of_their_batches(tmp_path, architecture, source, line, data):
    name = "data.jsonl" if source == "conversations" else "data.txt"
    path = tiny.write(tmp_path / name, (line(f"some words and {i}") for i in range(200)))
    settings = tiny.config(
        tmp_path, architecture=architecture, data={"source": source, "paths": (path,), **data},
        tokenizer={"kind": "byte"}, model={"max_len": 64},
    )  # fmt: skip
    task = tiny.prepare(settings)
    batch = task.training_data(SingleRunner()).batches[0]
    shapes = task.model.batch_shapes(len(batch["tokens"]))
    axes = None if settings.has_one_length else 1  # else rows are as long as the bucket
    assert {name: (spec.ndim, spec.shape[:axes], spec.dtype) for name, spec in shapes.items()} == {
        name: (array.ndim, array.shape[:axes], array.dtype) for name, array in batch.items()
    }
