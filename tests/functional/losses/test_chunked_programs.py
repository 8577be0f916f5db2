"""What programs of chunked cross-entropy compute and hold."""

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.functional import chunked_cross_entropy
from jaxformer.functional.platforms import compiling_for
from tests.functional.losses.test_chunked_losses import (
    VOCAB,
    WIDTH,
    dense,
    loss_and_gradients,
)
from tests.functional.programs import called_by


def equations(jaxpr):
    """All equations, also those of inner functions and loops."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in called_by(equation):
            yield from equations(inner)


def trace(function, tokens, vocab_size=997, argnums=(0, 1), **options):
    shapes = [
        ((tokens, WIDTH), jnp.float32),
        ((vocab_size, WIDTH), jnp.float32),
        ((tokens,), jnp.int32),
    ]
    gradient = jax.grad(lambda *a: function(*a, **options)[0].sum(), argnums)
    inputs = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    return list(equations(jax.make_jaxpr(gradient)(*inputs).jaxpr))


def largest(equations_of_program):
    return max(
        variable.aval.size for equation in equations_of_program for variable in equation.outvars
    )


def products(equations_of_program):
    return sum(equation.primitive.name == "dot_general" for equation in equations_of_program)


def test_chunked_cross_entropy_never_holds_the_logits_of_all_tokens():
    assert largest(trace(dense, 4096)) == 4096 * 997
    assert largest(trace(chunked_cross_entropy, 4096)) == 256 * 997
    assert largest(trace(chunked_cross_entropy, 4096, chunk_size=64)) == 64 * 997
    assert largest(trace(chunked_cross_entropy, 4096, reduction="none")) == 256 * 997


def test_accelerators_take_chunks_of_as_many_logits_as_their_memory_holds_easily():
    with compiling_for("tpu"):
        assert largest(trace(chunked_cross_entropy, 8192, 2**16)) == 2**28
        assert largest(trace(chunked_cross_entropy, 4096, 2**19)) == 1024 * 2**19
        assert largest(trace(chunked_cross_entropy, 4096)) == 4096 * 997
        (vocab_size,) = export.symbolic_shape("v")
        assert products(trace(chunked_cross_entropy, 4096, vocab_size)) == 3


def test_chunked_cross_entropy_computes_no_product_twice_and_only_the_gradients_asked_for():
    assert products(trace(dense, 4096)) == products(trace(chunked_cross_entropy, 4096)) == 3
    for argnums in (0, 1):
        assert products(trace(chunked_cross_entropy, 4096, argnums=argnums)) == 2


@pytest.mark.parametrize(
    ("tokens", "chunks"), [(1, 1), (128, 1), (300, 3), (4096, 16), (99991, 98)]
)
def test_chunked_cross_entropy_chooses_chunks_by_the_number_of_tokens(tokens, chunks):
    program = trace(chunked_cross_entropy, tokens, argnums=0)
    lengths = [e.params["length"] for e in program if e.primitive.name == "scan"]
    assert lengths == [chunks]


def test_chunked_cross_entropy_leaves_sharded_tokens_where_they_are():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    hidden = jax.ShapeDtypeStruct((8, 32, WIDTH), jnp.float32, sharding=rows)
    table = jax.ShapeDtypeStruct((VOCAB, WIDTH), jnp.float32, sharding=whole)
    labels = jax.ShapeDtypeStruct((8, 32), jnp.int32, sharding=rows)
    program = loss_and_gradients.lower(hidden, table, labels, chunk_size=64).compile().as_text()
    assert f"f32[8,{VOCAB}]" in program  # each device has its 8 of the 64 tokens of a chunk
    assert "all-reduce" in program
    assert not any(word in program for word in ("all-gather", "all-to-all", "collective-permute"))
