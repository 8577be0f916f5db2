"""A mesh of devices: the numbers of one device, and no more of the model on each than must be."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType

from jaxformer.config import (
    AdamWConfig,
    ExpertsConfig,
    LayerConfig,
    MeshConfig,
    ModelConfig,
    ScheduleConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.functional import Prefix
from jaxformer.models import Decoder, EncoderDecoder
from jaxformer.training import (
    Checkpoints,
    MeshRunner,
    PmapRunner,
    SingleRunner,
    TrainState,
    language_model_loss,
    make_optimizer,
    make_train_step,
)
from jaxformer.training.parallel import bytes_per_device
from jaxformer.training.parallel.layout import sum_over_parts

ROWS, LENGTH, VOCAB, WIDTH = 16, 8, 22, 24
LAYER = {"max_len": LENGTH, "num_layers": 2, "d_model": WIDTH, "num_heads": 4, "vocab_size": VOCAB}
MODELS = {
    "decoder": Decoder(ModelConfig(**LAYER, layer_execution="scan", activation="swiglu")),
    "encoder_decoder": EncoderDecoder(
        ModelConfig(**LAYER, architecture="encoder_decoder", layer_execution="loop")
    ),
    "experts": Decoder(
        ModelConfig(
            **LAYER,
            activation="swiglu",
            experts=ExpertsConfig(
                num_experts=4,
                num_experts_per_token=2,
                router_z_weight=0.1,
                num_shared_experts=2,
                shared_gate=True,
                router_scores="sigmoid",
                num_groups=2,
            ),
            first_layers=(LayerConfig(experts=False),),
        )
    ),
}
MESHES = {
    "rows": MeshConfig(),
    "fsdp": MeshConfig(fsdp=2),
    "fsdp_tensor": MeshConfig(fsdp=2, tensor=2),
    "all": MeshConfig(fsdp=2, tensor=2, sequence=2),
    "experts": MeshConfig(fsdp=2, expert=2, tensor=2),
}
OPTIMIZER = make_optimizer(AdamWConfig(learning_rate=1e-2), ScheduleConfig(name="constant"))


def batches(architecture, count):
    """Batches whose rows have different numbers of labels, some none at all."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        lengths = rng.integers(1, LENGTH + 1, ROWS)
        lengths[:3] = LENGTH  # so that padding is uneven over the devices
        tokens = rng.integers(0, VOCAB, (3, ROWS, LENGTH), dtype=np.int32)
        labels = np.where(np.arange(LENGTH) < lengths[:, None], tokens[0], -1)
        labels[5] = -1
        batch = {"tokens": tokens[1], "labels": labels}
        if architecture == "encoder_decoder":
            batch |= {"source_tokens": tokens[2], "source_lengths": lengths.astype(np.int32)}
        yield batch


def created(architecture, runner, optimizer=OPTIMIZER):
    model = MODELS[architecture]

    def create(rng):
        return TrainState.create(model.init_params(rng), optimizer)

    return runner.create(create, (jax.random.key(0),))


def trained(architecture, runner, steps=20, optimizer=OPTIMIZER):
    """Losses of some steps, and the state after them."""
    step = runner.compile_train(
        make_train_step(
            language_model_loss(MODELS[architecture]), optimizer, seed=0,
            accumulate_steps=2, axis_name=runner.axis_name,
        )
    )  # fmt: skip
    state, losses = created(architecture, runner, optimizer), []
    for batch in batches(architecture, steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    return np.array(losses), state, step


@functools.cache
def losses_on_one_device(architecture):
    return trained(architecture, SingleRunner())[0]  # of 20 steps, which cost little


@functools.cache
def gradients_on_one_device(architecture):
    return gradients(architecture, SingleRunner())


def gradients(architecture, runner):
    """First gradients, as a step of plain gradient descent subtracts them."""
    start = jax.device_get(created(architecture, runner).params)
    _, after, _ = trained(architecture, runner, 1, optimizer=optax.sgd(1.0))
    return jax.tree.map(np.subtract, start, jax.device_get(after.params))


@pytest.mark.parametrize(
    ("architecture", "mesh"),
    [
        ("decoder", "all"),
        ("experts", "experts"),
        pytest.param("encoder_decoder", "fsdp_tensor", marks=pytest.mark.slow),
    ],
)
def test_mesh_trains_as_one_device(architecture, mesh):
    runner = MeshRunner(MESHES[mesh])
    losses, state, step = trained(architecture, runner, steps=4)
    np.testing.assert_allclose(losses, losses_on_one_device(architecture)[:4], rtol=1e-6)
    assert step._function._cache_size() == 1  # the second step is the same program
    if MESHES[mesh].sequence > 1:  # keys and values go round, rather than all to every device
        batch = next(batches(architecture, 1))
        with runner.context():
            program = step._function.lower(state, runner.put(batch), ()).as_text()
        assert "collective_permute" in program


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["pmap", "rows", "fsdp", "fsdp_tensor", "all"])
def test_every_runner_trains_as_one_device(architecture, devices, kind):
    chosen = jax.local_devices()[:devices]
    if kind == "pmap":
        runner = PmapRunner(chosen)
    elif devices % (MESHES[kind].fsdp * MESHES[kind].tensor * MESHES[kind].sequence):
        pytest.skip("the mesh needs more devices")
    else:
        runner = MeshRunner(MESHES[kind], chosen)
    losses, state, _ = trained(architecture, runner)
    np.testing.assert_allclose(losses, losses_on_one_device(architecture), rtol=1e-6)
    split, single = gradients(architecture, runner), gradients_on_one_device(architecture)
    chex.assert_trees_all_close(split, single, rtol=1e-5, atol=1e-6)


@pytest.mark.essential
def test_dropout_on_a_mesh_is_that_of_one_device():
    def loss(params, batch, rng):
        keep = jax.random.bernoulli(rng, 0.5, batch["x"].shape)
        return (params * jnp.where(keep, batch["x"], 0)).sum(), jnp.float32(1)

    batch = {"x": np.arange(1.0, 17.0, dtype=np.float32)}
    losses = []
    for runner in (SingleRunner(), MeshRunner()):
        step = runner.compile_train(make_train_step(loss, optax.sgd(0.0), seed=1))
        state = runner.place(TrainState.create(jnp.float32(1), optax.sgd(0.0)))
        losses.append([float((out := step(state, batch))[1]["loss"]), float(out[0].params)])
    assert losses[0] == losses[1]


def test_no_device_has_more_than_its_share():
    """Parameters of large kernels, and the optimizer's moments of them, are split by both axes."""
    runner = MeshRunner(MeshConfig(fsdp=2, tensor=4))
    state = created("decoder", runner)
    layer = state.params["stack"]["layers"]
    moment = state.opt_state[1][0].mu["stack"]["layers"]["attention"]["query_kernel"]
    shards = {
        "query": layer["attention"]["query_kernel"],
        "output": layer["attention"]["output_kernel"],
        "down": layer["feed_forward"]["down_kernel"],
        "bias": layer["feed_forward"]["up_bias"],
        "moment": moment,
        "embedding": state.params["embedding"]["embedding"],
        "norm": state.params["final_norm"]["scale"],
    }
    assert {name: leaf.addressable_shards[0].data.shape for name, leaf in shards.items()} == {
        "query": (2, WIDTH // 2, WIDTH // 4),
        "output": (2, WIDTH // 4, WIDTH // 2),
        "down": (2, WIDTH, WIDTH // 2),
        "bias": (2, WIDTH),
        "moment": (2, WIDTH // 2, WIDTH // 4),
        "embedding": (VOCAB, WIDTH // 2),  # 4 does not divide the vocabulary
        "norm": (WIDTH,),
    }
    on_a_device = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    shapes = jax.eval_shape(lambda: state)
    assert bytes_per_device(shapes, runner.sizes) == on_a_device


@pytest.mark.parametrize("way", ["to_pmap", "from_pmap"])
def test_checkpoint_of_a_runner_restores_on_another(tmp_path, way):
    runners = [MeshRunner(MESHES["all"]), PmapRunner(jax.local_devices()[:2])]
    saves, loads = runners if way == "to_pmap" else reversed(runners)
    state = created("decoder", saves)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state)
        checkpoints.wait()
        template = created("decoder", loads)
        template = jax.tree.map(lambda leaf: leaf + 1, template)
        restored = checkpoints.restore(template)
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, (restored, state)))
    for leaf, placed in zip(
        *map(jax.tree.leaves, (restored, loads.place(jax.device_get(state)))), strict=True
    ):
        assert leaf.sharding == placed.sharding


@pytest.mark.parametrize(
    ("changes", "inputs", "rings"),
    [
        ({}, {}, True),
        ({"positions": "alibi"}, {"mask": Prefix(3)}, True),
        ({"attention_sinks": True}, {}, False),  # which need what a ring does not return
        ({}, {"mask": np.ones((1, 1, LENGTH, LENGTH), bool)}, False),
        ({}, {"return_weights": True}, False),
        ({}, {"short": True}, False),  # 2 x 2 chunks do not divide it
        ({"attention_implementation": "cudnn", "dtype": "bfloat16"}, {}, False),
    ],
)  # fmt: skip
def test_ring_is_taken_where_it_serves(changes, inputs, rings):
    model = Decoder(dataclasses.replace(MODELS["decoder"].config, num_layers=1, **changes))
    inputs = dict(inputs)
    tokens = jnp.zeros((2, LENGTH - 2 * inputs.pop("short", False)), jnp.int32)
    plain = Decoder(dataclasses.replace(model.config, attention_implementation="auto"))
    params = jax.eval_shape(plain.init_params, jax.random.key(0))
    runner = MeshRunner(MeshConfig(sequence=2), jax.local_devices()[:4])
    step = runner.compile_eval(
        lambda params, batch: model.apply({"params": params}, batch["tokens"], **inputs).logits
    )
    shapes = {"tokens": jax.ShapeDtypeStruct(tokens.shape, jnp.int32)}
    try:
        program = step.lower(runner.template(params), runner.batch_template(shapes)).as_text()
    except ConfigError as error:  # where there is no GPU
        assert "it needs an NVIDIA GPU" in str(error)
        assert changes["attention_implementation"] == "cudnn"
        return
    assert ("collective_permute" in program) == rings


def test_loss_in_chunks_needs_no_axes_but_those_that_there_are():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    arrays = jnp.ones((4, 3, 2)), jnp.ones((5, 2)), jnp.ones((4, 3), jnp.int32)

    def total(hidden, table, labels):
        return (hidden.sum() + table.sum() * 0 + labels.sum()).astype(jnp.float32)

    with jax.set_mesh(mesh):
        summed = jax.jit(lambda *arrays: sum_over_parts(total, *arrays))(*arrays)
    assert float(summed) == 4 * 3 * 2 + 4 * 3


def test_loss_in_chunks_on_a_mesh_is_that_of_one_device(monkeypatch):
    losses = losses_on_one_device("decoder")
    monkeypatch.setattr("jaxformer.training.losses._MAX_LOGITS", 1)
    mesh_losses, _, _ = trained("decoder", MeshRunner(MESHES["all"]), steps=3)
    np.testing.assert_allclose(mesh_losses, losses[:3], rtol=1e-6)
