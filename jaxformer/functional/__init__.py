"""Pure functions on arrays: attention, masks, positions, normalization, feed-forward, losses.

To read the folder, start at `linear`, `normalization`, `feed_forward` and `embedding`, whose
functions check their arguments by `checks` and then compute. `pooling` is one function more;
`losses` and `experts` build on logits and feed-forward layers. `positions` and `masks` say where
tokens are, and which keys a query attends to. `attention` is read from `dot_product` to `inputs`
(checks), `program` (which implementation), `block` (the parts of the mathematics), `dense` (one
block, and its derivative) and `chunked` (many blocks, by `plan`); its other files are for kernels
and meshes. `multi_head` is the layer around it, with its caches. `dtypes`, `taps`, `platforms`,
`sharding`, `static_numbers` and `linear_map` serve all of them.

Dtypes. The first array of data decides: hidden states, logits, a query, or the table of `embed`.
Results have its dtype; those of logits, losses, pooling and attention weights are float32. Softmax,
norms, rotations, losses and the router of experts are computed in float32 (float64 for float64).
Parameters, biases and tables of another dtype are cast to the one that is computed in, and their
gradients have their own. Key and value must have the query's dtype, and floats of 8 bits are
refused. float16 needs no care in any sum or softmax; but products and activations beyond 65504 are
infinite, and small gradients 0, so training in float16 needs a scale of the loss.
"""

from jaxformer.functional.attention import (
    RingLayout,
    attention_implementation,
    attention_mask,
    attention_weights,
    dot_product_attention,
    from_ring_order,
    ring_attention,
    ring_positions,
    sharded_attention,
    sharded_ring_attention,
    to_ring_order,
)
from jaxformer.functional.embedding import embed, unembed
from jaxformer.functional.experts.devices import ExpertsLayout
from jaxformer.functional.experts.mixture import ExpertsOutput, ExpertsParams, mixture_of_experts
from jaxformer.functional.experts.routing import Routing
from jaxformer.functional.feed_forward import (
    FeedForwardParams,
    GatedFeedForwardParams,
    feed_forward,
    gated_feed_forward,
)
from jaxformer.functional.linear import Kernel, LowRankKernel, Products, linear
from jaxformer.functional.losses.chunked import chunked_cross_entropy
from jaxformer.functional.losses.cross_entropy import cross_entropy
from jaxformer.functional.masks import Causal, Lengths, Mask, Prefix, Rule, Segments, Window
from jaxformer.functional.multi_head import (
    AttentionFunction,
    CachedKeys,
    KVCache,
    MultiHeadOutput,
    MultiHeadParams,
    Rotation,
    WindowCache,
    multi_head_attention,
    project_memory,
)
from jaxformer.functional.normalization import layer_norm, rms_norm
from jaxformer.functional.pooling import pool
from jaxformer.functional.positions.biases import (
    AlibiBias,
    RelativeBias,
    alibi_slopes,
)
from jaxformer.functional.positions.scaling import (
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    RotaryScaling,
    YarnScaling,
)
from jaxformer.functional.positions.sinusoids import (
    apply_rotary,
    rotary_tables,
    sinusoidal_positions,
)
from jaxformer.functional.taps import LayerTaps

__all__ = [
    "AlibiBias",
    "AttentionFunction",
    "CachedKeys",
    "Causal",
    "ExpertsLayout",
    "ExpertsOutput",
    "ExpertsParams",
    "FeedForwardParams",
    "GatedFeedForwardParams",
    "KVCache",
    "Kernel",
    "LayerTaps",
    "Lengths",
    "LinearScaling",
    "Llama3Scaling",
    "LongropeScaling",
    "LowRankKernel",
    "Mask",
    "MultiHeadOutput",
    "MultiHeadParams",
    "Prefix",
    "Products",
    "RelativeBias",
    "RingLayout",
    "RotaryScaling",
    "Rotation",
    "Routing",
    "Rule",
    "Segments",
    "Window",
    "WindowCache",
    "YarnScaling",
    "alibi_slopes",
    "apply_rotary",
    "attention_implementation",
    "attention_mask",
    "attention_weights",
    "chunked_cross_entropy",
    "cross_entropy",
    "dot_product_attention",
    "embed",
    "feed_forward",
    "from_ring_order",
    "gated_feed_forward",
    "layer_norm",
    "linear",
    "mixture_of_experts",
    "multi_head_attention",
    "pool",
    "project_memory",
    "ring_attention",
    "ring_positions",
    "rms_norm",
    "rotary_tables",
    "sharded_attention",
    "sharded_ring_attention",
    "sinusoidal_positions",
    "to_ring_order",
    "unembed",
]
