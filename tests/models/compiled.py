"""Models compiled once for equal models and shapes, for the tests of them."""

import functools

import jax
import numpy as np

compiled = functools.partial(jax.jit, static_argnums=0)


@functools.partial(compiled, static_argnames="return_weights")
def apply(model, params, *tokens, **inputs):
    return model.apply({"params": params}, *tokens, **inputs)


def apply_on_host(*arguments, **inputs):
    """What a model gives as NumPy arrays, so that what tests do with them is not compiled."""
    return jax.device_get(apply(*arguments, **inputs))


def assert_decodes(model, params, tokens, lengths, expected, *, cache, steps, atol=1e-5, **inputs):
    """Prompts of these lengths, then token by token, have the expected logits of a full pass."""
    rows, close = np.arange(len(tokens)), functools.partial(np.testing.assert_allclose, rtol=0)
    output = apply(model, params, tokens[:, : max(lengths)], lengths=lengths, cache=cache, **inputs)
    for row, length in enumerate(lengths):
        close(output.logits[row, :length], expected[row, :length], atol=atol)
    for step in range(steps):
        token = tokens[rows, lengths + step][:, None]
        output = apply(model, params, token, cache=output.cache, **inputs)
        close(output.logits[:, 0], expected[rows, lengths + step], atol=atol)
    assert output.cache[0].lengths.tolist() == [length + steps for length in lengths]
