"""Mixture of experts module."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ExpertsConfig, ModelConfig
from jaxformer.functional import ExpertsLayout, ExpertsParams, Routing, mixture_of_experts
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products, linear
from jaxformer.modules.feed_forward import FeedForward, inner_activation
from jaxformer.modules.initializers import AxisNames, KernelShape, kernel_param, projection_params
from jaxformer.modules.mesh import mesh_axes, num_parts


def make_feed_forward(config: ModelConfig, *, name: str | None = None) -> nn.Module:
    """Feed-forward layer of a config: a mixture of experts if it has `experts`."""
    if config.experts is None:
        return FeedForward(config, name=name)
    return ExpertsFeedForward(config, config.experts, name=name)


class ExpertsFeedForward(nn.Module):
    """Mixture of experts as a feed-forward layer, with auxiliary router losses.

    Shared experts are a `FeedForward`, whose output is added to that of the chosen experts.

    Sows the two losses of `mixture_of_experts`, times their weights if not 0, into the collection
    "losses", as "load_balancing" and "router_z". Training adds those of all layers to the mean
    loss, as means over micro-batches, and over devices unless jit splits the program over a mesh,
    weighted by the number of labels.

    Into the collection "metrics", which training records as means over layers and parts, it sows
    "largest_expert_load", that of the most chosen expert divided by an even load, and with a
    capacity "dropped_choices", their share.

    Args:
        config: widths, activation and biases.
        experts: the experts and their router.
        products: precision and function of the matrix products of the experts, also shared ones.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, d_model=8, activation="swiglu", use_bias=False)
        >>> experts = ExpertsConfig(num_experts=3, num_experts_per_token=2)
        >>> layer, x = ExpertsFeedForward(config, experts), jnp.ones((2, 8))
        >>> variables = layer.init(jax.random.key(0), x)
        >>> jax.tree.map(jnp.shape, nn.unbox(variables)["params"])["gate_kernel"]
        (3, 8, 32)
        >>> sorted(variables["losses"])
        ['load_balancing']
    """

    config: ModelConfig
    experts: ExpertsConfig
    products: Products = DEFAULT_PRODUCTS

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array | None = None, deterministic: bool = True
    ) -> jax.Array:
        """Maps float `[..., D]` to `[..., D]`.

        Only tokens where mask, bool `[...]`, is True count in the auxiliary losses. The mask does
        not change the output. Experts have a capacity only if not deterministic.
        """
        config, experts = self.config, self.experts
        count, has_bias = experts.num_experts, config.has_bias("feed_forward")

        def inner(config: ModelConfig) -> int:
            return config.ff_dim if experts.d_ff is None else experts.d_ff

        inward, outward = ("experts", "embed", "mlp"), ("experts", "mlp", "embed")
        # Flax numbers the RNG draws of a module, so the initial values depend on this order.
        kernels: dict[str, tuple[AxisNames, KernelShape]] = {
            "router": (("embed", None), lambda c: (c.d_model, count)),
            "up": (inward, lambda c: (count, c.d_model, inner(c))),
            "down": (outward, lambda c: (count, inner(c), c.d_model)),
            "gate": (inward, lambda c: (count, c.d_model, inner(c))),
        }
        if not config.is_gated:
            del kernels["gate"]
        params: dict[str, jax.Array] = {}
        for name, kernel in kernels.items():
            params |= projection_params(
                self, name, config, *kernel,
                has_bias=experts.router_bias if name == "router" else has_bias,
                into_residual=name == "down",
            )  # fmt: skip
        if experts.router_scores == "sigmoid":
            # In float32: rounded to bfloat16, large biases would choose other experts.
            zeros = nn.with_logical_partitioning(nn.initializers.zeros, (None,))
            params["selection_bias"] = self.param("selection_bias", zeros, (count,), jnp.float32)
        routing = Routing(
            scores=experts.router_scores, normalize_weights=experts.normalize_weights,
            scale=experts.routed_scale, num_groups=experts.num_groups,
            num_groups_per_token=experts.num_groups_per_token,
        )  # fmt: skip
        result = mixture_of_experts(
            ExpertsParams(**params), x, num_experts_per_token=experts.num_experts_per_token,
            activation=inner_activation(config), routing=routing, mask=mask,
            # A drop depends on the other tokens of the batch, also on later ones.
            capacity_factor=None if deterministic else experts.capacity_factor,
            layout=_layout(x.shape, count, inner(config)), products=self.products,
        )  # fmt: skip
        losses = {
            "load_balancing": (experts.load_balancing_weight, result.load_balancing_loss),
            "router_z": (experts.router_z_weight, result.router_z_loss),
        }
        for name, (weight, loss) in losses.items():
            if weight:
                self.sow("losses", name, weight * loss)
        even = experts.num_experts_per_token / count
        self.sow("metrics", "largest_expert_load", result.expert_load.max() / even)
        if experts.capacity_factor is not None:
            self.sow("metrics", "dropped_choices", result.dropped)
        if not experts.num_shared_experts:
            return result.output
        # All widths of the shared experts, also that of the base of μP, are multiples.
        wide, base = (experts.num_shared_experts * inner(c) for c in (config, config.base))
        mup = config.mup and dataclasses.replace(config.mup, d_ff=base)
        shared_config = dataclasses.replace(
            config, d_ff=wide, mup=mup, experts=None, first_layers=()
        )
        shared = FeedForward(shared_config, self.products, name="shared")(x)
        if experts.shared_gate:
            # Not a "gate_kernel", whose rules on a mesh are those of the experts.
            to_weight = kernel_param(
                self, "shared_weight_kernel", config, ("embed", None), lambda c: (c.d_model, 1)
            )
            shared *= jax.nn.sigmoid(linear(x, to_weight, products=self.products))
        return result.output + shared


def _layout(shape: tuple[int, ...], num_experts: int, inner: int) -> ExpertsLayout | None:
    """How the mesh splits tokens `[B, T, D]` and experts, if it does, by the logical axis rules."""
    # Left to itself, XLA would gather the tokens of all devices to sort them.
    rows, tokens, experts, hidden = map(mesh_axes, ("batch", "sequence", "experts", "mlp"))
    if num_parts((*rows, *tokens, *hidden)) == 1 or len(shape) != 3:
        return None
    if shape[0] % num_parts(rows) or shape[1] % num_parts(tokens):
        return None
    splits = num_parts(experts) > 1 and num_experts % num_parts(experts) == 0
    return ExpertsLayout(
        batch_axes=rows,
        sequence_axes=tokens,
        expert_axis=experts[0] if splits else None,
        hidden_axes=hidden if inner % num_parts(hidden) == 0 else (),
    )
