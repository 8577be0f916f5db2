"""Ring attention of a model on a mesh that splits tokens: where it serves, and its order."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jaxformer.config import ModelConfig
from jaxformer.functional.attention import RingLayout
from jaxformer.functional.attention.inputs import split_bias
from jaxformer.functional.attention.ring.order import places_of_slots
from jaxformer.functional.attention.ring.sharded_ring import exchange
from jaxformer.functional.masks.base import Sizes, has_array, map_rules
from jaxformer.functional.masks.rules import Segments
from jaxformer.models.transformer_inputs import CheckedInputs
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.mesh import mesh_axes, num_parts


def ring_layout(
    config: ModelConfig, context: AttentionContext, num_rows: int, num_tokens: int
) -> RingLayout | None:
    """Layout of ring attention over the mesh; None if it does not serve, or tokens are not split.

    Where it does not, XLA gathers the keys and values of whole sequences on every device.
    """
    rows, tokens, heads = map(mesh_axes, ("batch", "sequence", "heads"))
    if num_parts(tokens) == 1 or len(tokens) != 1:
        return None
    # A ring does not return the residual that sinks need, takes no arrays and calls no kernel.
    if config.attention_sinks or config.attention_implementation in ("cudnn", "splash"):
        return None
    if split_bias(context.bias)[0] is not None or has_array(context.mask):
        return None
    if not num_rows % num_parts(rows) == num_tokens % (2 * num_parts(tokens)) == 0:
        return None
    parts = num_parts(heads)
    head_axes = heads if config.num_heads % parts == config.kv_heads % parts == 0 else ()
    return RingLayout(
        sequence_axis=tokens[0], batch_axes=rows, head_axes=head_axes,
        in_ring_order=context.order is not None,
    )  # fmt: skip


def in_ring_order(
    tokens: jax.Array, inputs: CheckedInputs, layout: RingLayout
) -> tuple[jax.Array, CheckedInputs]:
    """Tokens or vectors, and the inputs that are one per token, in ring order."""
    move = functools.partial(exchange, layout=layout)
    context, (num_rows, num_tokens) = inputs.context, inputs.positions.shape
    sizes = Sizes((num_rows,), 1, num_tokens, num_tokens)
    places = places_of_slots(jnp.arange(num_tokens), num_tokens, num_parts((layout.sequence_axis,)))
    context = dataclasses.replace(
        context,
        segment_ids=jax.tree.map(move, context.segment_ids),
        mask=map_rules(
            Segments, lambda segments: jax.tree.map(move, segments.checked(sizes)), context.mask
        ),
        order=places,
    )
    positions, token_types = jax.tree.map(move, (inputs.positions, inputs.token_types))
    return move(tokens), dataclasses.replace(
        inputs, positions=positions, token_types=token_types, context=context
    )
