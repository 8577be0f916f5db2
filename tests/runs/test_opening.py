"""Runs opened on several devices: every result is that of one, and none has the whole model."""

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.training import SingleRunner
from jaxformer.training.parallel import make_inference_runner

TEXTS = ["one three", "two one two"]


def opened(folder, mesh):
    """A run on one device, and on a mesh."""
    single, split = runs.open_run(folder), runs.open_run(folder, mesh=mesh)
    shares = [
        shape.size / leaf.addressable_shards[0].data.size
        for leaf, shape in zip(*map(jax.tree.leaves, (split.params, single.params)), strict=True)
    ]
    assert max(shares) == mesh.fsdp * mesh.tensor  # kernels are split over all devices
    return single, split


def assert_evaluates_alike(single, split):
    alone, together = single.evaluate(), split.evaluate()
    assert together.loss == pytest.approx(alone.loss, rel=1e-6)
    assert together.scores == pytest.approx(alone.scores, rel=1e-6)
    assert together.details == alone.details


@pytest.mark.slow
def test_translator_on_a_mesh_translates_as_on_one_device(translation_run):
    single, split = opened(translation_run[0], MeshConfig(fsdp=2, tensor=2))
    assert_evaluates_alike(single, split)
    for actual, expected in zip(split.translate(TEXTS), single.translate(TEXTS), strict=True):
        assert [translation.text for translation in actual] == [
            translation.text for translation in expected
        ]
        assert [translation.score for translation in actual] == pytest.approx(
            [translation.score for translation in expected], 1e-5
        )
    for single_map, split_map in zip(
        single.attention(TEXTS[0]), split.attention(TEXTS[0]), strict=True
    ):
        np.testing.assert_allclose(single_map.weights, split_map.weights, rtol=1e-5, atol=1e-6)


def test_masked_language_model_on_a_mesh_fills_in_as_on_one_device(masked_run):
    single, split = opened(masked_run[0], MeshConfig(tensor=2))
    assert_evaluates_alike(single, split)
    (single_fills,), (split_fills,) = (
        run.fill_masks(["the [MASK] sat"]) for run in (single, split)
    )
    assert [[fill.text for fill in best] for best in single_fills] == [
        [fill.text for fill in best] for best in split_fills
    ]
    states = [run.hidden_states(["the cat sat"])[0] for run in (single, split)]
    np.testing.assert_allclose(*states, rtol=1e-5, atol=1e-5)


SHAPES = {"mlp": {"up_kernel": jax.ShapeDtypeStruct((64, 96), np.float32)}}
SIZE = 64 * 96 * 4


@pytest.mark.parametrize(
    ("trained_on", "memory", "sizes"),
    [
        (MeshConfig(), 2 * SIZE, None),
        (MeshConfig(fsdp=2, tensor=2), 2 * SIZE, None),
        (MeshConfig(data=4, fsdp=2, tensor=2), 2 * SIZE - 1, {"fsdp": 2, "tensor": 2}),
        (MeshConfig(), SIZE, {"fsdp": 8, "tensor": 1}),
        (MeshConfig(fsdp=16), SIZE, {"fsdp": 8, "tensor": 1}),  # more devices than there are
    ],
)
def test_parameters_are_split_where_one_device_has_no_room_for_them_twice(
    monkeypatch, trained_on, memory, sizes
):
    monkeypatch.setattr("jaxformer.training.parallel.runner.device_memory", lambda _: memory)
    runner = make_inference_runner(SHAPES, trained_on)
    if sizes is None:
        assert isinstance(runner, SingleRunner)
    else:
        assert runner.sizes == {"data": 1, "expert": 1, "sequence": 1} | sizes


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        (MeshConfig(fsdp=3, tensor=3), "needs 9 devices of one host, got 8; lower mesh.fsdp"),
        (MeshConfig(tensor=5), r"mesh.tensor=5 must divide .* got 96 of mlp/up_kernel \[64, 96\]"),
    ],
)
def test_meshes_that_cannot_hold_the_parameters_are_refused(mesh, message):
    with pytest.raises(ConfigError, match=message):
        make_inference_runner(SHAPES, MeshConfig(), mesh).template(SHAPES)
