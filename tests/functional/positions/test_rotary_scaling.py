import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import functional as F
from jaxformer.functional.positions.scaling import scale_frequencies


def unscaled(head_dim, base):
    return np.float64(base) ** (-np.arange(0, head_dim, 2) / head_dim)


def reference_yarn(head_dim, base, scaling):
    """YaRN's frequencies of every pair, one by one."""
    frequencies = []
    for pair in range(head_dim // 2):
        frequency = base ** (-2 * pair / head_dim)
        # Solve original_max_len * base ** (-2 * pair / head_dim) = 2 pi * turns for the pair.
        first, last = (
            head_dim / 2 * math.log(scaling.original_max_len / (2 * math.pi * turns), base)
            for turns in (scaling.beta_fast, scaling.beta_slow)
        )
        if scaling.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, head_dim - 1)
        divided = min(max((pair - first) / ((last - first) or 0.001), 0.0), 1.0)
        frequencies.append(frequency * (1 - divided) + frequency / scaling.factor * divided)
    return np.array(frequencies)


LLAMA_3_1_8B = F.Llama3Scaling(8.0, 1.0, 4.0, 8192)
QWEN_2_5_7B = F.YarnScaling(4.0, 32_768)
LONGROPE = F.LongropeScaling((1.05, 1.25, 2.75, 7.5, 19.0, 41.5, 64.6), 32.0, 4096)
GPT_OSS = F.YarnScaling(32.0, 4096, truncate=False)
DEEPSEEK_V3 = F.YarnScaling(40.0, 4096, mscale=1.0, mscale_all_dim=1.0)

# Head width, base, scaling -> some frequencies by pair, and the attention factor. Made once by
# ROPE_INIT_FUNCTIONS["linear" | "llama3" | "yarn" | "longrope"] of transformers 5.23.0 with torch
# 2.13.0, in float32, from the rotary settings of these models' published configurations (Qwen's:
# of its model card, for long texts).
PUBLISHED = [
    (
        64, 10_000.0, F.LinearScaling(4.0), 1.0,
        {0: 0.25, 1: 0.18747355043888092, 16: 0.0024999999441206455, 31: 3.333803761051968e-05},
    ),
    (
        128, 500_000.0, LLAMA_3_1_8B, 1.0,
        {0: 1.0, 1: 0.8146172165870667, 28: 0.0032114461064338684, 30: 0.0013718936825171113,
         32: 0.0005248460220173001, 34: 0.0001785077911335975, 36: 7.784655463183299e-05,
         63: 3.068925877869333e-07},
    ),
    (
        128, 1_000_000.0, QWEN_2_5_7B, 1.138629436111989,
        {0: 1.0, 1: 0.8058422207832336, 21: 0.010746078565716743, 28: 0.0018482765881344676,
         32: 0.0006029411451891065, 36: 0.0001798411540221423, 48: 7.905693564680405e-06,
         63: 3.102344408034696e-07},
    ),
    (
        64, 150_000.0, GPT_OSS, 1.3465735902799727,
        {1: 0.6890442967414856, 8: 0.05081327259540558, 10: 0.019334999844431877,
         14: 0.002093792660161853, 18: 3.830881178146228e-05, 31: 3.023511396804679e-07},
    ),
    (
        64, 10_000.0, DEEPSEEK_V3, 1.0,
        {1: 0.7498942017555237, 10: 0.05623412877321243, 12: 0.026879360899329185,
         16: 0.005500000435858965, 20: 0.0007905694073997438, 24: 2.499999936844688e-05},
    ),
    # DeepSeek-V2's settings, with 1.0 as the second scale; Phi-3-mini-128k's width and lengths.
    (64, 10_000.0, DEEPSEEK_V3._replace(mscale=0.707), 0.9210423553163399, {}),
    (
        96, 10_000.0, F.LongropeScaling(tuple(1 + i / 3 for i in range(48)), 32.0, 4096),
        1.1902380714238083,
        {0: 1.0, 1: 0.6190531253814697, 17: 0.0057467808946967125, 47: 7.269165507750586e-06},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("head_dim", "base", "scaling", "factor", "some"), PUBLISHED)
def test_frequencies_equal_the_published_models(head_dim, base, scaling, factor, some):
    frequencies, attention_factor = scale_frequencies(unscaled(head_dim, base), base, scaling)
    assert frequencies.dtype == np.float64 and frequencies.shape == (head_dim // 2,)
    # What is left is the float32 rounding of the published numbers.
    np.testing.assert_allclose(frequencies[list(some)], list(some.values()), rtol=2e-6)
    assert attention_factor == pytest.approx(factor, rel=1e-15)


# The first blends from before the first pair, the second to behind the last or, as in the authors'
# code, backwards, and the third over less than one pair.
YARNS = [
    F.YarnScaling(3.7, 101),
    F.YarnScaling(3.7, 10**8, truncate=False),
    F.YarnScaling(3.7, 1009, beta_fast=1.02, truncate=False),
    F.YarnScaling(31.0, 1009, beta_fast=13.0, beta_slow=0.7),
]


@pytest.mark.parametrize("scaling", YARNS)
@pytest.mark.parametrize("base", [53.0, 1e4])
def test_yarn_blends_as_the_reference(base, scaling):
    frequencies, _ = scale_frequencies(unscaled(14, base), base, scaling)
    np.testing.assert_allclose(frequencies, reference_yarn(14, base, scaling), rtol=1e-12)


@pytest.mark.parametrize("scaling", [QWEN_2_5_7B, DEEPSEEK_V3, LONGROPE])
def test_attention_factor_may_be_given(scaling):
    scaling = scaling._replace(attention_factor=0.83)
    assert scale_frequencies(unscaled(14, 1e4), 1e4, scaling)[1] == 0.83


def test_yarn_without_a_pair_to_blend_keeps_only_the_first():
    # Both ends of the blend are pair 0: five positions are 0.8 turns of it.
    frequencies, _ = scale_frequencies(unscaled(14, 53.0), 53.0, F.YarnScaling(4.0, 5))
    expected = unscaled(14, 53.0) / [1, 4, 4, 4, 4, 4, 4]
    np.testing.assert_allclose(frequencies, expected, rtol=1e-15)


# Positions are traced; each choice of the other arguments compiles once.
tables_of = jax.jit(F.rotary_tables, static_argnums=1, static_argnames=("base", "scaling"))
rotate = jax.jit(F.apply_rotary, static_argnames="layout")


@pytest.mark.parametrize(
    ("base", "scaling"),
    [
        (5e5, None),
        *(
            (1e4, s)
            for s in (None, F.LinearScaling(3.7), LLAMA_3_1_8B, QWEN_2_5_7B, GPT_OSS, LONGROPE)
        ),
    ],
)
def test_rotary_errs_at_most_5e_7_up_to_a_million(base, scaling):
    positions = np.append(np.arange(0, 1_000_000, 11), 1_000_000)
    frequencies, factor = scale_frequencies(unscaled(14, base), base, scaling)
    turn = np.exp(1j * positions[:, None] * frequencies)
    tables = tables_of(positions, 14, base=base, scaling=scaling)
    assert [table.dtype for table in tables] == [jnp.float32] * 2
    cos, sin = (np.asarray(table, np.float64) / factor for table in tables)
    errors = {"cos": np.abs(cos - turn.real).max(), "sin": np.abs(sin - turn.imag).max()}
    # Pairs of length 1 at random angles.
    angles = np.random.default_rng(7).uniform(0, 2 * np.pi, turn.shape)
    halves = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
    order = np.arange(14).reshape(2, 7).T.ravel()  # where "interleaved" has what "half" has
    expected = (halves[:, :7] + 1j * halves[:, 7:].astype(np.float64)) * turn
    expected = np.concatenate([expected.real, expected.imag], axis=-1)
    for layout, places in (("half", np.arange(14)), ("interleaved", order)):
        x = jnp.asarray(halves[:, None, places])
        rotated = np.asarray(rotate(x, tables, layout=layout), np.float64)[:, 0] / factor
        errors[layout] = np.abs(rotated - expected[:, places]).max()
    print({name: f"{error:.2e}" for name, error in errors.items()})
    assert max(errors.values()) <= 5e-7


@pytest.mark.essential
def test_linear_scaling_is_position_interpolation():
    positions = jnp.asarray([0, 1, 3, 1009, 333_333])
    stretched = F.rotary_tables(3 * positions, 14, scaling=F.LinearScaling(3.0))
    for table, expected in zip(stretched, F.rotary_tables(positions, 14), strict=True):
        np.testing.assert_allclose(table, expected, rtol=0, atol=2e-7)
