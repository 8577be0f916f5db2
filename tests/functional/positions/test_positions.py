import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.functional import apply_rotary, rotary_tables, sinusoidal_positions


def reference_angles(positions, width, base):
    """Angles in float64: `[..., ceil(width / 2)]`."""
    frequencies = np.float64(base) ** (-np.arange(0, width, 2) / width)
    return np.asarray(positions, np.float64)[..., None] * frequencies


def reference_encoding(positions, width, base=10_000.0, layout="interleaved"):
    angles = reference_angles(positions, width, base)
    sine, cosine = np.sin(angles), np.cos(angles)[..., : width // 2]
    if layout == "half":
        return np.concatenate([sine, cosine], axis=-1)
    result = np.empty((*np.shape(positions), width))
    result[..., 0::2], result[..., 1::2] = sine, cosine
    return result


def random_positions(seed, largest=1_000_000, shape=(211,)):
    return np.random.default_rng(seed).integers(-largest, largest, shape, endpoint=True)


# Positions are traced; each choice of the other arguments compiles once.
encode = jax.jit(sinusoidal_positions, static_argnums=1, static_argnames=("base", "layout"))
tables_of = jax.jit(rotary_tables, static_argnums=1, static_argnames="base")
rotate = jax.jit(apply_rotary, static_argnames="layout")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.sampled_from(
        [(1, 1e4, "half"), (6, 1e4, "half"), (7, 12_345.678, "interleaved"), (7, 1.5, "half")]
    ),
)
def test_sinusoidal_is_exact_to_float32_up_to_a_million(seed, options):
    width, base, layout = options
    positions = random_positions(seed)
    encoding = encode(positions, width, base=base, layout=layout)
    assert encoding.dtype == jnp.float32
    expected = reference_encoding(positions, width, base, layout)
    np.testing.assert_allclose(encoding, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_sinusoidal_errs_at_most_5e_7_up_to_a_million(layout):
    positions = np.append(np.arange(0, 1_000_000, 11), 1_000_000)
    expected = reference_encoding(positions, 14, layout=layout)
    error = np.abs(encode(positions, 14, layout=layout) - expected).max()
    print(f"{layout}: {error:.2e}")
    assert error <= 5e-7


def test_sinusoidal_is_exact_around_quarter_turns():
    # The base makes the second wavelength 44 positions to within 1e-8: phases fall on multiples
    # of a quarter turn, where the reduction picks another quadrant.
    base = (44 / (2 * math.pi)) ** 2
    positions = np.arange(-88, 89)
    encoding = encode(positions, 4, base=base)
    expected = reference_encoding(positions, 4, base)
    np.testing.assert_allclose(encoding, expected, rtol=0, atol=2e-7)


def test_sinusoidal_keeps_its_phase_at_the_largest_positions():
    # The float64 reference itself is only good to 2**31 * 2**-53 = 2.4e-7 here.
    positions = np.array([2**31 - 1, -(2**31 - 1), -(2**31), 2**31 - 2, 1_999_999_973])
    encoding = encode(positions, 7)
    np.testing.assert_allclose(encoding, reference_encoding(positions, 7), rtol=0, atol=1.5e-6)


def test_positions_of_a_length_count_from_zero():
    encoding, (cos, sin), empty = jax.jit(
        lambda: (sinusoidal_positions(5, 7), rotary_tables(5, 6), sinusoidal_positions(0, 7))
    )()
    np.testing.assert_allclose(encoding, reference_encoding(range(5), 7), rtol=0, atol=2e-7)
    angles = reference_angles(range(5), 6, 1e4)
    np.testing.assert_allclose(cos, np.cos(angles), rtol=0, atol=2e-7)
    np.testing.assert_allclose(sin, np.sin(angles), rtol=0, atol=2e-7)
    assert empty.shape == (0, 7)


def test_sinusoidal_keeps_every_leading_axis():
    positions = random_positions(1, shape=(2, 3, 5))
    expected = reference_encoding(positions, 7)
    np.testing.assert_allclose(encode(positions, 7), expected, rtol=0, atol=5e-7)
    scalar = encode(positions[0, 1, 2], 7)
    assert scalar.shape == (7,)
    np.testing.assert_allclose(scalar, expected[0, 1, 2], rtol=0, atol=5e-7)


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_layouts_hold_the_same_features(width):
    interleaved = encode(jnp.arange(5), width)
    half = encode(jnp.arange(5), width, layout="half")
    order = [*range(0, width, 2), *range(1, width, 2)]
    np.testing.assert_array_equal(half, interleaved[:, order])


def test_positions_may_be_traced_or_mapped():
    positions = jnp.asarray(random_positions(2, shape=(3, 5)), jnp.int32)
    expected = reference_encoding(positions, 7)
    eager = sinusoidal_positions(positions, 7)
    np.testing.assert_allclose(eager, expected, rtol=0, atol=5e-7)
    np.testing.assert_allclose(encode(positions, 7), eager, rtol=0, atol=2e-7)
    mapped = jax.jit(jax.vmap(lambda p: sinusoidal_positions(p, 7)))(positions)
    np.testing.assert_allclose(mapped, eager, rtol=0, atol=2e-7)


def test_positions_may_be_unsigned_or_have_64_bits():
    positions = np.array([2**31, 2**31 + 5, 2**32 - 1], np.uint32)
    expected = reference_encoding(positions, 7)
    encoding = encode(jnp.asarray(positions), 7)
    np.testing.assert_allclose(encoding, expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(tables_of(jnp.asarray(positions), 14)[1][:, 0], encoding[:, 0])
    with jax.enable_x64(True):
        for dtype in (np.int64, np.uint64):
            wide = encode(jnp.asarray(positions.astype(dtype)), 7)
            np.testing.assert_array_equal(wide, encoding)
        beyond = np.array([2**33 + 3, -(2**33) - 3])
        expected = reference_encoding(beyond, 7)
        np.testing.assert_allclose(encode(jnp.asarray(beyond), 7), expected, rtol=0, atol=1e-5)


def test_positions_may_be_narrow_integers():
    positions = np.array([-128, 127, 3, -3], np.int8)
    expected = reference_encoding(positions, 7)
    np.testing.assert_allclose(encode(positions, 7), expected, rtol=0, atol=5e-7)


def test_positions_under_x64_give_the_same_float32_tables():
    positions = random_positions(3)
    narrow = (encode(positions, 7), *tables_of(positions, 14))
    with jax.enable_x64(True):
        assert jnp.asarray(positions).dtype == jnp.int64
        wide = (encode(positions, 7), *tables_of(positions, 14))
        by_length = jax.jit(lambda: sinusoidal_positions(5, 7))()
    for result, value in zip(wide, narrow, strict=True):
        assert result.dtype == jnp.float32
        np.testing.assert_array_equal(result, value)
    assert by_length.dtype == jnp.float32
    np.testing.assert_allclose(by_length, reference_encoding(np.arange(5), 7), rtol=0, atol=2e-7)


def test_tables_of_float64_are_exact_to_float64():
    positions = np.array([0, 1, 7, 1000, -3, 10**6])
    with jax.enable_x64(True):
        cosine, sine = rotary_tables(positions, 6, dtype=np.float64)
        encoding = sinusoidal_positions(positions, 7, dtype=np.float64)
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(cosine, np.cos(angles), rtol=0, atol=1e-9)
    np.testing.assert_allclose(sine, np.sin(angles), rtol=0, atol=1e-9)
    np.testing.assert_allclose(encoding, reference_encoding(positions, 7), rtol=0, atol=1e-9)


def random_heads(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape)


def split_pairs(x, layout):
    x = np.asarray(x, np.float64)
    if layout == "half":
        return np.split(x, 2, axis=-1)
    return x[..., 0::2], x[..., 1::2]


# [..., T, N, H] of every test, so that each layout compiles once.
HEADS = random_heads(4, (2, 5, 3, 14))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_multiplies_complex_numbers(layout):
    positions = random_positions(4, 1000, (5,))
    rotated = rotate(jnp.asarray(HEADS, jnp.float32), tables_of(positions, 14), layout=layout)
    first, second = split_pairs(HEADS, layout)
    turn = np.exp(1j * reference_angles(positions, 14, 1e4))[:, None]
    product = (first + 1j * second) * turn
    real, imaginary = split_pairs(rotated, layout)
    np.testing.assert_allclose(real, product.real, rtol=0, atol=3e-6)
    np.testing.assert_allclose(imaginary, product.imag, rtol=0, atol=3e-6)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_depends_only_on_relative_position(layout):
    # Five copies of one query and one key; the copies differ in position only.
    query, key = (
        jnp.asarray(np.tile(x[:, :1], (1, 5, 1, 1)), jnp.float32) for x in (HEADS, -HEADS)
    )
    starts = jnp.asarray([0, 3, 1009, 65_537, 999_983])

    def products(distance):
        rotated = rotate(query, tables_of(starts, 14), layout=layout)
        partner = rotate(key[:, :, ::-1], tables_of(starts + distance, 14), layout=layout)
        return np.einsum("btnh,btnh->btn", rotated, partner)

    near, far = products(11), products(13)
    np.testing.assert_allclose(near, np.tile(near[:, :1], (1, 5, 1)), rtol=0, atol=1e-5)
    assert np.abs(near - far).min() > 1e-3


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_keeps_the_norm_of_every_pair(layout):
    x = jnp.asarray(HEADS, jnp.float32)
    rotated = rotate(x, tables_of(jnp.arange(5), 14), layout=layout)
    norms, expected = (np.hypot(*split_pairs(a, layout)) for a in (rotated, x))
    np.testing.assert_allclose(norms, expected, rtol=1e-6)
    np.testing.assert_array_equal(rotated[:, 0], x[:, 0])


def test_rotary_layouts_differ_by_a_permutation_of_features():
    x, tables = jnp.asarray(HEADS, jnp.float32), tables_of(jnp.arange(5), 14)
    order = np.arange(14).reshape(7, 2).T.ravel()  # where "half" keeps what "interleaved" has
    by_half = rotate(x[..., order], tables, layout="half")
    by_pairs = rotate(x, tables, layout="interleaved")
    np.testing.assert_allclose(by_half, by_pairs[..., order], rtol=0, atol=1e-6)
    assert not np.allclose(by_half, by_pairs)


def test_rotary_of_a_part_leaves_the_other_features_alone():
    x = np.random.default_rng(11).standard_normal((2, 7, 3, 10)).astype(np.float32)
    tables = rotary_tables(7, 4)
    for layout in ("half", "interleaved"):
        turned = apply_rotary(x, tables, layout=layout, rotary_dim=4)
        expected = apply_rotary(x[..., :4], tables, layout=layout)
        np.testing.assert_array_equal(turned[..., :4], expected)
        np.testing.assert_array_equal(turned[..., 4:], x[..., 4:])
    whole = apply_rotary(x, rotary_tables(7, 10), layout="half")
    again = apply_rotary(x, rotary_tables(7, 10), layout="half", rotary_dim=10)
    np.testing.assert_array_equal(again, whole)


def test_rotary_takes_tables_of_every_row():
    x = jnp.asarray(HEADS, jnp.float32)
    positions = random_positions(8, 1000, (2, 5))
    tables = tables_of(positions, 14)
    together = rotate(x, tables, layout="half")
    for row in range(2):
        alone = rotate(x, [table[row] for table in tables], layout="half")
        np.testing.assert_allclose(together[row], alone[row], rtol=0, atol=1e-6)
    nested = rotate(x[None], [table[None] for table in tables], layout="half")
    np.testing.assert_allclose(nested[0], together, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_rotary_computes_in_float32_and_keeps_the_dtype(dtype):
    x, tables = jnp.asarray(HEADS, dtype), tables_of(jnp.arange(5), 14)
    rotated = rotate(x, tables, layout="half")
    assert rotated.dtype == dtype
    wide = rotate(x.astype(jnp.float32), tables, layout="half")
    np.testing.assert_array_equal(rotated, wide.astype(dtype))


def test_rotary_of_float64_stays_float64():
    with jax.enable_x64(True):
        cos, sin = tables_of(jnp.arange(5), 14)
        rotated = rotate(jnp.asarray(HEADS), (cos, sin), layout="half")
        assert rotated.dtype == jnp.float64
        rotated = np.array(rotated)
    cos, sin = (np.asarray(table, np.float64)[:, None] for table in (cos, sin))
    first, second = split_pairs(HEADS, "half")
    expected = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    np.testing.assert_allclose(rotated, expected, rtol=0, atol=1e-14)
