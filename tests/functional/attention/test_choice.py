"""Which implementation a call takes, and why not the others."""

import functools
import importlib
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import attention_implementation, dot_product_attention, platforms
from jaxformer.functional.attention import program
from jaxformer.functional.attention.kernels import cudnn
from tests.functional import oracle
from tests.functional.attention.attention_cases import QUICK, assert_close, cotangent_of, inputs_of
from tests.functional.attention.attention_cases import Sizes as Axes


def shapes(dtype=np.float32, num_queries=64, num_keys=64, heads=(4, 2), width=16, value_width=16):
    return [
        jax.ShapeDtypeStruct(shape, dtype)
        for shape in (
            (3, num_queries, heads[0], width),
            (3, num_keys, heads[1], width),
            (3, num_keys, heads[1], value_width),
        )
    ]


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "name", "declined", "reason"),
    [
        (64, 64, "dense", "chunked", "49,152 weights are no more than the 4,194,304"),
        (64, 2**18, "dense", "chunked", "T=64 queries are too few"),
        (512, 512, "dense", "chunked", "3,145,728 weights"),
        (1024, 1024, "chunked", "dense", "12,582,912 weights"),
        (1, 2**23, "dense", "chunked", "T=1 "),
    ],
)
def test_auto_takes_what_the_number_of_weights_calls_for(
    num_queries, num_keys, name, declined, reason
):
    choice = attention_implementation(*shapes(num_queries=num_queries, num_keys=num_keys))
    assert choice.name == name
    assert set(choice.declined) == {"dense", "chunked", "cudnn", "splash"} - {name}
    assert reason in choice.declined[declined]
    assert "needs an NVIDIA GPU, and the default backend is cpu" in choice.declined["cudnn"]


@pytest.mark.usefixtures("real_blocks")
def test_beside_an_accelerator_a_cpu_runs_its_program_which_alone_is_traced():
    x = jax.ShapeDtypeStruct((1, 8192, 8, 64), np.float32)

    def has_branches_by_platform():
        attend = functools.partial(dot_product_attention, is_causal=True)
        return "branches_platforms" in str(jax.make_jaxpr(lambda x: attend(x, x, x))(x))

    assert has_branches_by_platform()
    with platforms.compiling_for("cuda"):
        assert not has_branches_by_platform()


@pytest.mark.parametrize(
    ("length", "names"), [(96, ["dense"]), (1408, ["chunked", "dense"]), (8192, ["chunked"])]
)
def test_auto_is_the_implementation_that_it_names_on_each_platform(length, names, monkeypatch):
    called = []

    def note(name, function, *args, **options):
        called.append(name)
        return function(*args, **options)

    for name, function in program._FUNCTIONS.items():
        noted = functools.partial(note, name, function)
        monkeypatch.setitem(program._FUNCTIONS, name, noted)
    inputs = shapes(num_queries=length, num_keys=length)
    for implementation in ("auto", names[0]):
        attend = functools.partial(
            dot_product_attention, is_causal=True, implementation=implementation
        )
        assert jax.eval_shape(attend, *inputs).shape == inputs[0].shape
    assert called == [*names, names[0]]
    for platform in ("cpu", "tpu", "cuda", "rocm"):
        choice_of_platform = attention_implementation(*inputs, platform=platform)
        assert choice_of_platform.name == names[-1 if platform != "cpu" else 0]


@pytest.mark.parametrize("implementation", ["xla", None])
def test_attention_takes_the_names_of_jax_nn(implementation):
    inputs = inputs_of(Axes((), 5, 7, 6, 3, 11, 13))
    output = dot_product_attention(**inputs, implementation=implementation)
    assert_close(output, oracle.attention(**inputs), 1e-6)


def test_choice_checks_its_arguments():
    with pytest.raises(ShapeError, match="key must be"):
        attention_implementation(*shapes(width=8)[:1], *shapes(width=24)[1:])
    with pytest.raises(TypeError, match="is_casual"):
        attention_implementation(*shapes(), is_casual=True)
    with pytest.raises(ConfigError, match="NVIDIA GPU"):
        attention_implementation(*shapes(), implementation="cudnn")


def test_choice_of_a_named_implementation_is_that():
    choice = attention_implementation(*shapes(), implementation="chunked", dropout_rate=0.1)
    assert choice.name == "chunked" and choice.declined == {}


def test_choice_takes_shapes_in_place_of_all_arrays():
    arrays = shapes(num_queries=1024, num_keys=1024)
    lengths, ids = (jax.ShapeDtypeStruct(shape, np.int32) for shape in ((3,), (3, 1024)))
    options = {
        "query_offset": lengths, "query_seq_lengths": lengths, "key_value_seq_lengths": lengths,
        "query_segment_ids": ids, "key_value_segment_ids": ids, "is_causal": True,
    }  # fmt: skip
    assert attention_implementation(*arrays, **options).name == "chunked"
    with pytest.raises(ShapeError, match="key_value_segment_ids"):
        attention_implementation(*arrays, **options | {"key_value_segment_ids": lengths})


HALF = shapes(jnp.bfloat16)
NOT_FOR_CUDNN = [
    (shapes(np.float32), {}, "bfloat16 or float16, and the query is float32"),
    (shapes(jnp.bfloat16, width=20), {}, "H=20"),
    (shapes(jnp.bfloat16, width=256, value_width=256), {}, "H=256"),
    (shapes(jnp.bfloat16, value_width=8), {}, "Hv=8 and H=16"),
    (shapes(jnp.bfloat16, num_keys=0), {}, "S=0"),
    (HALF, {"softcap": 5.0}, "no soft cap"),
    (HALF, {"return_residual": True}, "log-sum-exp"),
    (HALF, {"dropout_rate": 0.1}, "dropout"),
    (HALF, {"mask": np.ones((64, 64), bool)}, "mask"),
    (HALF, {"bias": np.zeros((64, 64), np.float32)}, "-inf"),
    (
        HALF,
        {name: np.zeros((3, 64), int) for name in ("query_segment_ids", "key_value_segment_ids")},
        "segment ids",
    ),
    (HALF, {"local_window_size": 4}, "(4, 4)"),
    (HALF, {"local_window_size": (4, None)}, "(4, None)"),
    (HALF, {"is_causal": True, "query_offset": 2}, "query_offset=2"),
    (HALF, {"is_causal": True, "query_offset": np.array([0, 0, 0])}, "query_offset=an array"),
    (
        shapes(jnp.bfloat16, num_keys=72),
        {"is_causal": True, "query_offset": 0},
        "T=64, S=72 and query_offset=0",
    ),
    (
        HALF,
        {"is_causal": True, "local_window_size": 4, "key_value_seq_lengths": 3},
        "some rows may see nothing",
    ),
]
LONG = shapes(jnp.bfloat16, 1024, 1024)
NOT_FOR_SPLASH = [
    (shapes(jnp.float16, 1024, 1024), {}, "bfloat16 or float32, and the query is float16"),
    ([jax.ShapeDtypeStruct((0, 1024, 4, 16), jnp.bfloat16)] * 3, {}, "not empty"),
    (LONG, {"return_residual": True}, "its log-sum-exp has no gradient"),
    (LONG, {"dropout_rate": 0.1}, "no dropout"),
    (LONG, {"mask": np.ones((1024, 1024), bool)}, "no mask as an array"),
    (LONG, {"bias": np.zeros((1024, 1024), np.float32)}, "no bias"),
    (LONG, {"is_causal": True, "query_offset": np.zeros(3, int)}, "an int, got an array"),
]
DECLINED = [("cudnn", "cuda", *row) for row in NOT_FOR_CUDNN]
DECLINED += [("splash", "tpu", *row) for row in NOT_FOR_SPLASH]


@pytest.mark.parametrize(("name", "platform", "arrays", "options", "reason"), DECLINED)
def test_kernel_declines_what_it_cannot_serve_and_raises_when_named(
    name, platform, arrays, options, reason, monkeypatch
):
    monkeypatch.setattr(platforms, "default_platform", lambda: platform)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    choice_of_call = attention_implementation(*arrays, **options)
    assert choice_of_call.name != name
    declined = choice_of_call.declined[name]
    assert reason in declined
    rng = {"dropout_rng": jax.random.key(0)} if "dropout_rate" in options else {}
    attend = functools.partial(dot_product_attention, implementation=name, **options, **rng)
    with pytest.raises(ConfigError) as error:
        jax.eval_shape(attend, *arrays)
    assert f"implementation={name!r} cannot serve this call: {declined}" in str(error.value)


@pytest.mark.parametrize(("capability", "largest"), [("8.9", 128), ("9.0", 256), ("12.0", 256)])
def test_cudnn_takes_wider_heads_on_newer_gpus(capability, largest, monkeypatch):
    monkeypatch.setattr(platforms, "default_platform", lambda: "cuda")
    gpu = types.SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu])
    fits, does_not = (
        attention_implementation(*shapes(jnp.bfloat16, width=width, value_width=width))
        for width in (largest, largest + 8)
    )
    assert fits.name == "cudnn"
    gpu.compute_capability = "7.5"
    old = attention_implementation(*shapes(jnp.bfloat16))
    assert old.name == "dense"
    assert "compute capability 8.0 or more, and this one has 7.5" in old.declined["cudnn"]
    assert f"a multiple of 8 up to {largest}, got H={largest + 8}" in does_not.declined["cudnn"]


SQUARE = Axes((2, 3), 8, 8, 4, 2, 8, 8)
FOR_CUDNN = {
    "nothing": (SQUARE, {}),
    "T and S differ": (SQUARE._replace(S=6), {"scale": 0.7}),
    "causal": (SQUARE, {"is_causal": True}),
    "window": (SQUARE, {"is_causal": True, "local_window_size": (3, 2)}),
    "lengths": (
        SQUARE,
        {
            "query_seq_lengths": np.array([8, 5, 0]),
            "key_value_seq_lengths": np.array([[8], [0]]),
            "is_causal": True,
        },
    ),
    "lengths as ints": (SQUARE._replace(leading=()), {"key_value_seq_lengths": 5}),
}


@pytest.mark.parametrize("case", FOR_CUDNN.values(), ids=FOR_CUDNN)
def test_cudnn_is_asked_for_what_the_contract_means(case, monkeypatch):
    """The kernel itself needs a GPU; here another one of jax.nn stands in for it."""
    sizes, options = case
    monkeypatch.setattr(platforms, "default_platform", lambda: "cuda")
    original, asked = jax.nn.dot_product_attention, []

    def stand_in(*args, implementation, **options):
        asked.append(implementation)
        return original(*args, **options, implementation="xla")

    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    inputs = inputs_of(sizes, jnp.bfloat16)
    arrays = {n: o for n, o in options.items() if isinstance(o, np.ndarray)}
    static = {n: o for n, o in options.items() if n not in arrays}
    assert attention_implementation(*inputs.values(), **options).name == "cudnn"

    @functools.partial(jax.jit, compiler_options=QUICK)
    def evaluate(inputs, arrays):
        def attend(inputs):
            return dot_product_attention(**inputs, **arrays, **static, implementation="cudnn")

        output, pull = jax.vjp(attend, inputs)
        return output, *pull(jnp.asarray(cotangent_of(sizes), jnp.bfloat16))

    lengths = np.broadcast_to(options.get("key_value_seq_lengths", sizes.S), sizes.leading)
    unseen = np.arange(sizes.S) >= lengths[..., None]
    for name in ("key", "value"):
        inputs[name][unseen] = np.nan
    real_lengths = np.broadcast_to(options.get("query_seq_lengths", sizes.T), sizes.leading)
    real_lengths = np.where(lengths == 0, 0, real_lengths)
    unseeing = np.arange(sizes.T) >= real_lengths[..., None]
    inputs["query"][unseeing] = np.nan
    output, gradients = evaluate(inputs, arrays)
    assert asked == ["cudnn"]
    assert output.dtype == jnp.bfloat16
    for name in ("key", "value"):
        inputs[name][unseen] = 0
        inputs["query"][unseeing] = 0
        assert (np.asarray(gradients[name])[unseen] == 0).all()
    expected = oracle.attention(**{n: a.astype(np.float32) for n, a in inputs.items()}, **options)
    assert_close(output, expected, 2**-7)
    assert (np.asarray(output)[expected == 0] == 0).all()
    assert all(np.isfinite(np.asarray(g, np.float32)).all() for g in gradients.values())


MASK_OF_CUDNN = {
    "nothing": ("NO_MASK", 0),
    "T and S differ": ("NO_MASK", 0),
    "causal": ("CAUSAL", 0),
    "window": ("CAUSAL", 4),  # the query's own key counts
    "lengths": ("PADDING_CAUSAL", 0),
    "lengths as ints": ("PADDING", 0),
}


@pytest.mark.parametrize("name", FOR_CUDNN)
def test_cudnn_is_lowered_for_an_nvidia_gpu(name, monkeypatch):
    """By JAX's own rules and kernels, which want a GPU only to ask for its kind and for cuDNN."""
    sizes, options = FOR_CUDNN[name]
    mask, window = MASK_OF_CUDNN[name]
    monkeypatch.setattr(platforms, "default_platform", lambda: "cuda")
    rules = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(rules, "check_cudnn_version", lambda: 91_300)
    monkeypatch.setattr(rules, "check_compute_capability", lambda _: True)
    monkeypatch.setattr(cudnn, "_compute_capability", lambda: 9.0)

    def loss(arrays):
        output = dot_product_attention(*arrays, **options, implementation="cudnn")
        return output.astype(np.float32).sum()

    kernels = ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]
    disabled = [export.DisabledSafetyCheck.custom_call(kernel) for kernel in kernels]
    for width in (8, 256):
        arrays = tuple(inputs_of(sizes._replace(H=width, Hv=width), jnp.bfloat16).values())
        gradient = jax.jit(jax.value_and_grad(loss))
        exported = export.export(gradient, platforms=["cuda"], disabled_checks=disabled)(arrays)
        calls = [line for line in exported.mlir_module().splitlines() if "@__cudnn" in line]
        assert [re.search(r"@(\S+)\(", call)[1] for call in calls] == kernels
        for call in calls:
            config = call.replace(r"\22", "")
            assert f"mask_type: {mask}," in config
            assert f"sliding_window_length: {window}," in config
