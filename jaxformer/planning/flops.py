"""Floating-point operations of the matrix products of a training step, from the config alone."""

from typing import NamedTuple

from jaxformer.config import ModelConfig


class Flops(NamedTuple):
    """FLOPs of matrix products, two for each multiplication and addition.

    Args:
        projections: projections of attention to queries, keys, values and output.
        attention: scores and sums of values, for all pairs of a query and a key, or those in a
            layer's window. Pairs that a causal mask hides count too: dense attention computes them,
            chunked and kernel attention skip most of them.
        feed_forward: feed-forward layers.
        output: logits, and other products that are computed once and not in each layer.
    """

    projections: float
    attention: float
    feed_forward: float
    output: float

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(self)

    def plus(self, other: "Flops") -> "Flops":
        """Sum of two, part by part."""
        return Flops(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Flops":
        """All parts, each multiplied by a number."""
        return Flops(*(factor * part for part in self))


def forward_flops(model: ModelConfig, length: int, source_length: int | None = None) -> Flops:
    """FLOPs of the forward pass of one row.

    Args:
        model: the model; vocab_size, and for a classifier num_classes, must be set.
        length: number of tokens of the row; in an encoder-decoder, of the target.
        source_length: number of source tokens of an encoder-decoder; as the target when not given.

    Example:
        >>> model = ModelConfig(vocab_size=5, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> forward_flops(model, 3)
        Flops(projections=768.0, attention=288.0, feed_forward=1536.0, output=120.0)
    """
    flops = _layers(model, length)
    if model.architecture == "encoder_decoder":
        source = length if source_length is None else source_length
        flops = flops.plus(_layers(model.encoder, source))
        cross = _attention(model, length, source)
        flops = flops.plus(cross.times(model.num_layers))
    return flops._replace(output=_output(model, length, source_length))


def step_flops(
    model: ModelConfig, rows: int, length: int, source_length: int | None = None, *,
    frozen: bool = False,
) -> Flops:  # fmt: skip
    """FLOPs of a training step: forward pass, backward pass, and recomputation by remat.

    The backward pass has two products for each one of the forward pass. "full" remat recomputes the
    layers, except the last product of each if no norm follows it, since no gradient needs its
    result; "dots" recomputes only the products within attention.

    Args:
        model: as in `forward_flops`.
        rows: number of rows of the batch, over all devices and micro-batches.
        length: as in `forward_flops`.
        source_length: as in `forward_flops`.
        frozen: whether the weights are frozen, as with LoRA: the backward pass then has one product
            for each product with them. The small products of LoRA's matrices do not count.
    """
    forward = forward_flops(model, length, source_length)
    kernels = _feed_forward_kernels(model)
    needed = kernels - 1 if model.norm_position == "pre" else kernels
    again = {
        "none": Flops(0, 0, 0, 0),
        "dots": Flops(0, forward.attention, 0, 0),
        "full": forward._replace(output=0, feed_forward=forward.feed_forward * needed / kernels),
    }[model.remat]
    if model.experts is not None:  # the backward pass computes each expert once more by itself
        again = again.plus(Flops(0, 0, forward.feed_forward, 0))
    backward = forward.times(2)
    if frozen:
        backward = forward._replace(attention=2 * forward.attention)
    return forward.plus(backward).plus(again).times(rows)


def _layers(model: ModelConfig, length: int) -> Flops:
    """Layers of one stack, without cross-attention."""
    flops = _feed_forward(model, length).times(model.num_layers)
    sides = 2 if model.architecture == "encoder" else 1
    for layer in model.layer_overrides:
        window = model.window_of(layer)
        seen = length if window is None else min(length, sides * window + 1)
        own = _attention(model, length, length)
        flops = flops.plus(own._replace(attention=own.attention * seen / length))
    return flops


def _attention(model: ModelConfig, queries: int, keys: int) -> Flops:
    heads, width = model.num_heads, model.d_model
    both = model.key_dim + model.value_dim
    of_query = queries * width * heads * both  # projections of query and output
    of_key = keys * width * model.kv_heads * both
    pairs = heads * queries * keys * both
    return Flops(2.0 * (of_query + of_key), 2.0 * pairs, 0.0, 0.0)


def _feed_forward(model: ModelConfig, length: int) -> Flops:
    products = _feed_forward_kernels(model) * length * model.d_model * model.ff_dim
    if model.experts is not None:  # every expert is computed for every token, and the router
        count, width = model.experts.num_experts, model.experts.d_ff or model.ff_dim
        products = _feed_forward_kernels(model) * length * model.d_model * count * width
        products += length * model.d_model * count
    return Flops(0.0, 0.0, 2.0 * products, 0.0)


def _feed_forward_kernels(model: ModelConfig) -> int:
    return 3 if model.is_gated else 2


def _output(model: ModelConfig, length: int, source_length: int | None) -> float:
    """Logits, the head of a masked language model, and projections of narrow embeddings."""
    width, embedded = model.d_model, length
    if model.architecture == "encoder_decoder":
        source = length if source_length is None else source_length
        own = model.source_vocab_size is not None  # then only the source has a narrow table
        embedded = source if own else length + source
    scored = width
    if model.architecture == "decoder" and model.tied_embeddings:  # projects back to a narrow table
        scored, embedded = model.table_dim, 2 * length
    products = 0 if model.table_dim == width else embedded * model.table_dim * width
    if model.architecture == "encoder" and model.num_classes is not None:
        return 2.0 * (products + width * model.num_classes)
    assert model.vocab_size is not None  # a plan knows it
    products += length * scored * model.vocab_size
    if model.architecture == "encoder":
        products += length * width * width
    return 2.0 * products
