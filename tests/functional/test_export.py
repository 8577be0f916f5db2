"""Exported programs: with symbolic sizes, and for other platforms than this machine's."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxformer import functional as F
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import platforms
from jaxformer.functional.attention import program
from jaxformer.functional.checks import check_range, is_symbolic
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases
from tests.functional.attention.attention_cases import Sizes as Axes
from tests.functional.multi_head.multi_head_cases import rotation

HIDDEN, HEADS = ("b, t, 12", np.float32), ("b, t, 6, 4", np.float32)
TOKENS, ROWS = ("b, t", np.int32), ("b", np.int32)
KERNEL = np.random.default_rng(3).standard_normal((12, 12), np.float32)


def masks(tokens, lengths):
    batch, length = tokens.shape
    return [
        F.Causal(2).array(length, length + 2),
        F.Causal(lengths).array(length, length, lengths.shape),
        F.Window(1, None, length - 7).array(length, 7),
        (F.Lengths(keys=lengths) & F.Segments(tokens)).array(length, length, lengths.shape),
        F.AlibiBias(F.alibi_slopes(3)).array(length, length),
        F.sinusoidal_positions(length, 7),
    ]


def attention(query, mask, segments, lengths):
    key, later = query[..., ::2, :], query.shape[1] - mask.shape[-1]
    attend = functools.partial(F.dot_product_attention, query, key, key[..., :3])
    return [
        attend(is_causal=True, local_window_size=3, implementation="dense"),
        attend(mask=mask, key_value_seq_lengths=lengths, is_causal=True, query_offset=later),
        attend(query_segment_ids=segments, key_value_segment_ids=segments, query_seq_lengths=2),
        attend(bias=F.RelativeBias(KERNEL[:, :6], max_distance=7), query_offset=1),
        attend(bias=F.AlibiBias(KERNEL[0, :6]), query_offset=lengths),
        F.attention_weights(query, key, mask=mask[..., :1]),
    ]


def layer(x, lengths):
    params = F.MultiHeadParams(*[KERNEL] * 4)
    rotary = rotation(F.rotary_tables(x.shape[1], 4))
    result = F.multi_head_attention(
        params, x, num_heads=3, rotary=rotary, is_causal=True, key_value_seq_lengths=lengths
    )
    normed = F.layer_norm(F.rms_norm(result.output))
    forward = F.feed_forward(F.FeedForwardParams(KERNEL, KERNEL), normed)
    return [forward, F.unembed(KERNEL, forward)]


def losses(x, labels):
    def chunked(x, table):
        return F.chunked_cross_entropy(x, table, labels)

    (loss, weight), pull = jax.vjp(chunked, x, KERNEL)
    unit = (jnp.ones_like(loss), jnp.zeros_like(weight))
    each = F.chunked_cross_entropy(x, KERNEL, labels, reduction="none")
    return [loss, weight, *pull(unit), *each, *F.cross_entropy(x, labels, label_smoothing=0.1)]


PROGRAMS = {
    "masks": (masks, [TOKENS, ROWS]),
    "attention": (attention, [HEADS, ("b, 1, t, t", bool), TOKENS, ROWS]),
    "layer": (layer, [HIDDEN, ROWS]),
    "losses": (losses, [HIDDEN, TOKENS]),
}


def draw(shape, dtype):
    rng = np.random.default_rng(7)
    if dtype is np.float32:
        return rng.standard_normal(shape, dtype)
    return rng.integers(0, 2, shape).astype(dtype)


@pytest.mark.essential
@pytest.mark.parametrize(("function", "inputs"), PROGRAMS.values(), ids=PROGRAMS)
def test_program_of_symbolic_sizes_computes_what_the_direct_call_does(function, inputs):
    scope = export.SymbolicScope()
    shapes = [export.symbolic_shape(text, scope=scope) for text, _ in inputs]
    specs = [jax.ShapeDtypeStruct(s, d) for s, (_, d) in zip(shapes, inputs, strict=True)]
    program = export.export(jax.jit(function))(*specs)
    for sizes in ({"b": 2, "t": 5}, {"b": 3, "t": 11}):
        arrays = [
            draw([sizes[a] if a in sizes else int(a) for a in text.split(", ")], dtype)
            for text, dtype in inputs
        ]
        got, expected = program.call(*arrays), jax.jit(function)(*arrays)
        chex.assert_trees_all_close(got, expected, rtol=2e-6, atol=2e-6)


def test_symbolic_lengths_leave_dense_attention():
    batch, length = export.symbolic_shape("b, t")
    x = jax.ShapeDtypeStruct((batch, length, 4, 8), jnp.float32)
    implementation = F.attention_implementation(x, x, x)
    assert implementation.name == "dense"
    assert implementation.declined["chunked"] == (
        "it cuts lengths that are known into blocks, got T=t and S=t"
    )
    attend = functools.partial(F.dot_product_attention, implementation="chunked")
    with pytest.raises(ConfigError, match="got T=t and S=t; pass 'auto' or 'dense'"):
        jax.eval_shape(attend, x, x, x)


def test_symbolic_batch_counts_as_one_row():
    (batch,) = export.symbolic_shape("b")
    for length, name in ((512, "dense"), (2048, "chunked")):
        x = jax.ShapeDtypeStruct((batch, length, 4, 8), jnp.float32)
        assert F.attention_implementation(x, x, x).name == name


def test_chunk_size_of_symbolic_tokens_is_refused():
    (tokens,) = export.symbolic_shape("t")
    x = jax.ShapeDtypeStruct((tokens, 12), jnp.float32)
    labels = jax.ShapeDtypeStruct((tokens,), jnp.int32)
    chunked = functools.partial(F.chunked_cross_entropy, chunk_size=4)
    with pytest.raises(ConfigError, match="chunk_size must be None where .* and t tokens"):
        jax.eval_shape(chunked, x, KERNEL, labels)


@pytest.mark.parametrize("value", [-1, [0, 2**31]])
def test_known_integers_are_held_against_int32_where_their_bound_is_symbolic(value):
    (size,) = export.symbolic_shape("s")
    assert is_symbolic(3, size + 1) and not is_symbolic(3, np.int64(3), None)
    check_range("lengths", 2**31 - 1, least=0, most=size)
    with pytest.raises(ShapeError, match=r"lengths must be in 0 \.\. S=s, got"):
        check_range("lengths", value, least=0, most=size, bound="S")


SMALL = Axes((2,), 7, 7, 6, 3, 8, 8)


@pytest.fixture
def chunked_on_cpu(monkeypatch):
    """Sizes for which "auto" is chunked on a CPU, and dense elsewhere."""
    monkeypatch.setitem(program._MAX_DENSE_WEIGHTS, "cpu", 0)
    monkeypatch.setattr(program, "_MIN_CHUNKED_QUERIES", 1)


def test_program_for_another_platform_has_the_choice_of_that_platform(chunked_on_cpu):
    arrays = cases.inputs_of(SMALL)
    attend = functools.partial(
        cases.evaluate, options={}, cotangent=cases.cotangent_of(SMALL), is_causal=True
    )
    texts = {}
    for platform in ("cpu", "cuda", "tpu"):
        program = export.export(jax.jit(attend), platforms=[platform])(arrays)
        texts[platform] = program.mlir_module()
        assert F.attention_implementation(*arrays.values(), platform=platform).name == (
            "chunked" if platform == "cpu" else "dense"
        )
    program_for_both = export.export(jax.jit(attend), platforms=["tpu", "cpu"])(arrays)
    jax.tree.map(
        np.testing.assert_array_equal, program_for_both.call(arrays), jax.jit(attend)(arrays)
    )
    loops = {name: text.count("stablehlo.while") for name, text in texts.items()}
    assert loops["cpu"] > 0 == loops["cuda"] == loops["tpu"]


def test_choice_of_a_gpu_runs_on_a_cpu_too(monkeypatch):
    """Such as a model that is initialized on the CPU of a machine with a GPU."""
    monkeypatch.setattr(platforms, "default_platform", lambda: "cuda")
    original, asked = jax.nn.dot_product_attention, []

    def stand_in(*args, implementation, **options):
        asked.append(implementation)
        return original(*args, **options, implementation="xla") * jnp.nan

    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    arrays = cases.inputs_of(SMALL, jnp.bfloat16)
    assert F.attention_implementation(*arrays.values(), is_causal=True).name == "cudnn"
    output = jax.jit(functools.partial(F.dot_product_attention, is_causal=True))(**arrays)
    assert asked == ["cudnn"]
    wide = {name: array.astype(np.float32) for name, array in arrays.items()}
    cases.assert_close(np.asarray(output), oracle.attention(**wide, is_causal=True), 2**-7)
