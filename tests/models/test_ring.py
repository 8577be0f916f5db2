"""Models whose tokens a mesh splits: in ring order inside, and what one device gives outside."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import ExpertsConfig, MeshConfig, ModelConfig
from jaxformer.functional import Prefix, Segments, cross_entropy
from jaxformer.models import Decoder, EncoderDecoder, Taps
from jaxformer.modules import Block
from jaxformer.training import MeshRunner

B, T, VOCAB = 4, 24, 11
CONFIG = ModelConfig(
    vocab_size=VOCAB, max_len=T, num_layers=1, d_model=8, num_heads=4, num_kv_heads=2,
    positions="rotary", layer_execution="loop",
)  # fmt: skip
RNG = np.random.default_rng(0)
IDS = np.sort(RNG.integers(0, 3, (B, T), np.int32))
LENGTHS = np.array([T, 20, 0, 7], np.int32)
POSITIONS = RNG.integers(0, T, (B, T), np.int32)
EXPERTS = ExpertsConfig(num_experts=3, num_experts_per_token=1, router_z_weight=0.1)


class ShiftingBlock(Block):
    """A block of a user's own, which mixes neighbours: it needs tokens in their original order."""

    def __call__(self, x, *arguments, **options):
        output = super().__call__(x, *arguments, **options)
        return output._replace(x=output.x + jnp.roll(output.x, 1, axis=1))


CASES = {
    "segments": ({"local_window_size": 9}, {"segment_ids": IDS, "positions": POSITIONS}, {}),
    "alibi": ({"positions": "alibi"}, {}, {"mask": Prefix(LENGTHS) & ~Segments(IDS, 2 - IDS)}),
    "relative": ({"positions": "relative", "num_layers": 2, "layer_execution": "scan"}, {}, {}),
    "experts": ({"experts": EXPERTS}, {"lengths": LENGTHS, "segment_ids": IDS}, {}),
    "taps": ({}, {"lengths": LENGTHS}, {"taps": Taps(read=("head_outputs",))}),
}  # fmt: skip


def on_both(model, batch, options):
    """Outputs and gradients on one device, and on a mesh of 4."""

    def evaluate(params, batch):
        def loss(params):
            inputs = {name: array for name, array in batch.items() if name != "labels"}
            variables = {"params": params}
            output, sown = model.apply(variables, **inputs, **options, mutable=["losses"])
            return cross_entropy(output.logits, batch["labels"])[0], (output, sown)

        (_, (output, sown)), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        return (output.logits, output.hidden, getattr(output, "taps", None)), sown, gradients

    params = model.init_params(jax.random.key(0))
    runner = MeshRunner(MeshConfig(data=2, sequence=2), jax.local_devices()[:4])
    step = runner.compile_eval(evaluate)
    expected = jax.jit(evaluate)(params, batch)
    return expected, jax.device_get(step(runner.place(params), batch))


def batch_of(**inputs):
    tokens, labels = np.random.default_rng(1).integers(0, VOCAB, (2, B, T), np.int32)
    return {"tokens": tokens, "labels": labels, **inputs}


def assert_equal_results(expected, got):
    for value, result in zip(*map(jax.tree.leaves, (expected, got)), strict=True):
        largest = max(1, np.abs(value).max())
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.essential
@pytest.mark.parametrize("case", CASES)
def test_a_model_whose_tokens_are_split_gives_what_one_device_gives(case):
    changes, inputs, options = CASES[case]
    model = Decoder(dataclasses.replace(CONFIG, **changes))
    assert_equal_results(*on_both(model, batch_of(**inputs), options))


def test_an_encoder_decoder_whose_tokens_are_split_gives_what_one_device_gives():
    config = dataclasses.replace(CONFIG, architecture="encoder_decoder", positions="learned")
    batch = batch_of(lengths=LENGTHS, source_lengths=np.array([5, T, 3, 1], np.int32))
    batch["source_tokens"] = batch["labels"]
    assert_equal_results(*on_both(EncoderDecoder(config), batch, {}))


def test_a_block_of_a_users_own_has_tokens_in_their_original_order():
    assert_equal_results(*on_both(Decoder(CONFIG, block=ShiftingBlock), batch_of(), {}))
