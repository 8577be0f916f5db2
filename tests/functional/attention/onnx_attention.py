"""The ONNX Attention operator, opsets 23 to 25, as calls of jaxformer.functional.

Nothing here computes attention: arrays are laid out, and attributes translated, as the standard
defines them. An input or attribute that is not known here raises.

Axes are those of the package. The standard stores `[B, N, T, H]`, or packed `[B, T, N*H]`; `P` is
the length of its past.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from einops import rearrange
from onnx.backend.test.case.node import _NodeTestCases as published
from onnx.backend.test.case.node import attention as published_attention

from jaxformer.functional import attention_weights, dot_product_attention
from tests.functional.attention.attention_cases import QUICK

# The makers of the published cases, of which importing the module has called every one.
MAKERS = [name for name in vars(published_attention.Attention) if name.startswith("export_")]
# What each qk_matmul_output_mode stands for; the numbers mean the same in all three opsets.
STAGES = ("scores", "capped", "masked", "softmax")


class Case(NamedTuple):
    """One published case: inputs by position, outputs by name."""

    inputs: list
    outputs: dict
    attributes: dict


def collect():
    """Returns the published cases by name, and the arrays of those published again.

    A second model of most cases spells the operator out as a graph of simpler ones ("_expanded");
    there is nothing new to compute, so these are told apart by their graphs.
    """
    cases, expanded = {}, {}
    for test in published:
        node, *more_nodes = test.model.graph.node
        for inputs, outputs in test.data_sets:
            if node.op_type != "Attention" or more_nodes:
                expanded[test.name] = [*inputs, *outputs]
                continue
            assert test.name not in cases
            present = iter(inputs)
            cases[test.name] = Case(
                inputs=[next(present) if name else None for name in node.input],
                outputs=dict(zip(filter(None, node.output), outputs, strict=True)),
                attributes={a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
            )
            assert next(present, None) is None
    return cases, expanded


class Call(NamedTuple):
    """The arguments of `dot_product_attention` that a case stands for, and how to answer it.

    Args:
        arrays: arguments that are traced.
        options: arguments that are not.
        stage: of `attention_weights`.
        packed: whether the result is `[B, T, N*Hv]`.
        dtype: of the results.
    """

    arrays: dict
    options: dict
    stage: str
    packed: bool
    dtype: np.dtype


def translate(
    query, key, value, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *,
    scale=None, is_causal=0, q_num_heads=None, kv_num_heads=None, softcap=0.0,
    softmax_precision=None, qk_matmul_output_mode=0, left_window_size=-1, right_window_size=-1,
):  # fmt: skip
    """Turns the standard's inputs, by position, and its attributes, by name, into a `Call`."""
    packed = query.ndim == 3
    if packed:
        query = rearrange(query, "b t (n h) -> b t n h", n=q_num_heads)
        key, value = (rearrange(a, "b s (k h) -> b s k h", k=kv_num_heads) for a in (key, value))
    else:
        query, key, value = (rearrange(a, "b n t h -> b t n h") for a in (query, key, value))
    num_queries, offset = query.shape[1], 0
    if past_key is not None:
        offset = past_key.shape[2]
        key = np.concatenate([rearrange(past_key, "b k p h -> b p k h"), key], axis=1)
        value = np.concatenate([rearrange(past_value, "b k p h -> b p k h"), value], axis=1)
    arrays = {"query": query, "key": key, "value": value}
    if nonpad_kv_seqlen is not None:
        arrays["key_value_seq_lengths"] = nonpad_kv_seqlen
        offset = nonpad_kv_seqlen - num_queries
    if attn_mask is not None:
        name, hidden = ("mask", False) if attn_mask.dtype == bool else ("bias", -np.inf)
        missing = key.shape[1] - attn_mask.shape[-1]  # the standard lets a mask end early
        widths = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
        arrays[name] = np.pad(attn_mask, widths, constant_values=hidden)
        arrays[name] = arrays[name][(None,) * (4 - attn_mask.ndim)]

    window = tuple(None if s == -1 else s for s in (left_window_size, right_window_size))
    options = {
        "scale": scale,
        "is_causal": bool(is_causal),
        "local_window_size": None if window == (None, None) else window,
        "softcap": softcap or None,
    }
    if is_causal or options["local_window_size"]:
        (options if isinstance(offset, int) else arrays)["query_offset"] = offset

    dtype = query.dtype
    if softmax_precision is not None:
        # The softmax is never narrower than the inputs, so wide inputs make a wide one.
        precision = onnx.helper.tensor_dtype_to_np_dtype(softmax_precision)
        for name in ("query", "key", "value"):
            arrays[name] = arrays[name].astype(jnp.promote_types(dtype, precision))
    return Call(arrays, options, STAGES[qk_matmul_output_mode], packed, dtype)


def attend(case, implementation):
    """Computes the outputs Y, present_key and present_value of a case."""
    call = translate(*case.inputs, **case.attributes)
    run = _compiled(dot_product_attention, **call.options, implementation=implementation)
    output = _call(run, call.arrays).astype(call.dtype)
    layout = "b t n h -> b t (n h)" if call.packed else "b t n h -> b n t h"
    key, value = (call.arrays[n].astype(call.dtype) for n in ("key", "value"))
    return {
        "Y": rearrange(output, layout),
        "present_key": rearrange(key, "b s k h -> b k s h"),
        "present_value": rearrange(value, "b s k h -> b k s h"),
    }


def weigh(case):
    """Computes the output qk_matmul_output of a case."""
    call = translate(*case.inputs, **case.attributes)
    arrays = {name: array for name, array in call.arrays.items() if name != "value"}
    run = _compiled(attention_weights, **call.options, stage=call.stage)
    return _call(run, arrays).astype(call.dtype)


@functools.cache
def _compiled(function, **options):
    """Many cases differ in their layout only, and need not be compiled again."""
    return jax.jit(lambda arrays: function(**arrays, **options), compiler_options=QUICK)


def _call(compiled, arrays):
    with jax.enable_x64(arrays["query"].dtype == np.float64):
        return np.asarray(compiled(arrays))
