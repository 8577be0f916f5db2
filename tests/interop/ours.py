"""What jaxformer computes with a model that was loaded, in the form of the golden files."""

import functools

import jax
import numpy as np

from jaxformer.config import SamplingConfig
from jaxformer.inference import generate

GREEDY = SamplingConfig(temperature=0.0)


@functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)
def _apply(model, params, *tokens, **inputs):
    output = model.apply({"params": params}, *tokens, **inputs)
    return output.logits, output.hidden, getattr(output, "pooled", None)


def arguments_of(kind, inputs):
    """What a model of a kind is called with: tokens, and what goes in by name."""
    tokens, lengths = inputs["tokens"], inputs["lengths"]
    if kind == "encoder_decoder":
        return (tokens, inputs["targets"]), {"source_lengths": lengths}
    options = {name: inputs[name] for name in ("token_types",) if name in inputs}
    return (tokens,), {"lengths": lengths, **options}


def run(loaded, kind, inputs):
    """Outputs of real tokens, from the inputs that `torch_models.run` takes."""
    tokens, lengths = inputs["tokens"], inputs["lengths"]
    is_real = np.arange(tokens.shape[1]) < lengths[:, None]
    arguments, options = arguments_of(kind, inputs)
    outputs = jax.device_get(_apply(loaded.model, loaded.params, *arguments, **options))
    arrays = dict(zip(("logits", "hidden", "pooled"), outputs, strict=True))
    if kind != "encoder_decoder":
        arrays["hidden"] = arrays["hidden"][is_real]
    if kind in ("decoder", "masked", "token_classifier"):
        arrays["logits"] = arrays["logits"][is_real]
    return arrays


def continue_greedily(loaded, prompt, count):
    """New tokens."""
    (new,) = generate(
        loaded.model, loaded.params, [prompt], max_new_tokens=count, rng=jax.random.key(0),
        sampling=GREEDY,
    )  # fmt: skip
    return new
