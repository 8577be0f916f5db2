"""A whole model as an exported program of symbolic batch and length."""

import jax
import numpy as np
from jax import export

from jaxformer.models import Decoder
from tests import option_sets


def test_decoder_exports_with_symbolic_batch_and_length():
    config = option_sets.config("composed", layer_execution="scan")
    params = option_sets.random_params(config)

    def logits(tokens, lengths):
        return Decoder(config).apply({"params": params}, tokens, lengths=lengths).logits

    batch, length = export.symbolic_shape("b, t")
    program = export.export(jax.jit(logits))(
        jax.ShapeDtypeStruct((batch, length), np.int32), jax.ShapeDtypeStruct((batch,), np.int32)
    )
    for shape in ((2, 5), (3, 11)):
        tokens = np.random.default_rng(1).integers(0, option_sets.VOCAB, shape, dtype=np.int32)
        full = np.full(shape[0], shape[1], np.int32)
        got = program.call(tokens, full)
        np.testing.assert_allclose(got, jax.jit(logits)(tokens, full), rtol=1e-5, atol=1e-5)
        expected = option_sets.reference_logits(config, params, tokens)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
