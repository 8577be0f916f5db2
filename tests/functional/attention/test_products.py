"""Products of attention on accelerators: operands in bfloat16, sums in float32."""

import functools
import re

import chex
import jax
import jax.numpy as jnp
import pytest
from jax import export

from jaxformer.functional import dot_product_attention, platforms
from jaxformer.functional.attention import program
from jaxformer.functional.attention.chunked import BlockSizes
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases


@pytest.mark.usefixtures("real_blocks")
@pytest.mark.parametrize("implementation", ["dense", "chunked"])
def test_bfloat16_is_multiplied_as_it_is_on_accelerators_alone(implementation):
    x = jax.ShapeDtypeStruct((1, 512, 4, 64), "bfloat16")

    def gradients(query, key, value):
        attend = functools.partial(
            dot_product_attention, is_causal=True, softcap=3.0, implementation=implementation
        )
        output, pull = jax.vjp(attend, query, key, value)
        return pull(output)

    for platform in ("cpu", "cuda", "tpu"):
        text = export.export(jax.jit(gradients), platforms=[platform])(x, x, x).mlir_module()
        products = re.findall(
            r"dot_general.* : \(tensor<\S*x(\w+)>, \S*x(\w+)>\) -> \S*x(\w+)>", text
        )
        assert len(products) >= 6
        operands = {operand for *pair, _ in products for operand in pair}
        assert "f32" in operands if platform == "cpu" else operands == {"bf16"}
        assert {result for *_, result in products} == {"f32"}


@pytest.mark.parametrize("implementation", ["dense", "chunked"])
def test_products_of_bfloat16_are_close_to_the_reference(monkeypatch, implementation):
    monkeypatch.setattr(program, "tuned_for", lambda platform: platforms.FALLBACK)
    monkeypatch.setattr(program, "block_sizes", lambda inputs, platform: BlockSizes(3, 1))
    inputs = cases.inputs_of(cases.GROUPED, jnp.bfloat16)
    mask = cases.KEY_HEAD_MASK
    attend = functools.partial(dot_product_attention, mask=mask, implementation=implementation)
    cotangent = cases.cotangent_of(cases.GROUPED, jnp.bfloat16)

    def results(inputs):
        output, pull = jax.vjp(lambda inputs: attend(**inputs), inputs)
        return output, *pull(cotangent)

    output, gradients = results(inputs)
    wide = {name: jnp.asarray(array, jnp.float32) for name, array in inputs.items()}
    expected, pull = jax.vjp(lambda inputs: dot_product_attention(**inputs, mask=mask), wide)
    cases.assert_close(output, oracle.attention(**inputs, mask=mask), 2**-7)
    for name, gradient in pull(jnp.asarray(cotangent, jnp.float32))[0].items():
        cases.assert_close(gradients[name], gradient, 2**-6)
    rows, keys = cases.unattended(cases.GROUPED, {"mask": mask}, {})
    assert (output[rows] == 0).all() and (gradients["query"][rows] == 0).all()
    assert (gradients["key"][keys] == 0).all() and (gradients["value"][keys] == 0).all()
    hidden = {name: jnp.asarray(inputs[name]).at[keys].set(jnp.nan) for name in ("key", "value")}
    chex.assert_trees_all_equal(results(inputs | hidden), (output, gradients))
