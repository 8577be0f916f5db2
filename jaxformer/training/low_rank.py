"""Low-rank adaptation (LoRA): trains two narrow matrices per kernel and freezes the model."""

import fnmatch
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util

from jaxformer.errors import ConfigError
from jaxformer.functional import LowRankKernel

_SHOWN = 8  # paths in a message


def low_rank_params(base: Any, rng: jax.Array, *, rank: int, targets: Sequence[str]) -> Any:
    r"""Initializes the LoRA matrices of a model's kernels.

    Args:
        base: parameters of the model, a nested dict of arrays or `jax.ShapeDtypeStruct`s, or of the
            boxes of them that `init` returns.
        rng: PRNG key.
        rank: R.
        targets: patterns of kernel paths, such as `*query_kernel`: `*` matches anything, `?` one
            character. Kernels with a single output are left out.

    Returns:
        A nested dict. For each kernel `[..., D, F]` that a pattern matches, it has at the same path
        "down" `[..., D, R]`, drawn from $\mathcal{N}(0, 1/D)$, and "up" `[..., R, F]`, zeros, in
        the kernel's dtype. So the model starts equal to its base.

    Raises:
        ConfigError: a pattern matches no kernel, or a kernel has a side shorter than the rank.

    References:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. The paper draws
        "down" from a Gaussian, but does not state its variance.

    Example:
        >>> base = {"attention": {"query_kernel": jnp.ones((5, 7)), "query_bias": jnp.ones(7)}}
        >>> params = low_rank_params(base, jax.random.key(0), rank=2, targets=["*query_kernel"])
        >>> jax.tree.map(jnp.shape, params)
        {'attention': {'query_kernel': {'down': (5, 2), 'up': (2, 7)}}}
    """
    # Kernels are the matrices of linear layers, not embedding tables. Those with a single output
    # have rank 1 themselves.
    kernels = {
        "/".join(path): (path, leaf)
        for path, leaf in sorted(traverse_util.flatten_dict(nn.unbox(base)).items())
        if path[-1].endswith("kernel") and leaf.ndim >= 2 and leaf.shape[-1] > 1
    }
    chosen: set[str] = set()
    for target in targets:
        matched = {name for name in kernels if fnmatch.fnmatchcase(name, target)}
        if not matched:
            more = " and more" if len(kernels) > _SHOWN else ""
            raise ConfigError(
                f"lora.targets has {target!r}, which matches no kernel; the kernels are "
                f"{', '.join(list(kernels)[:_SHOWN])}{more}"
            )
        chosen |= matched
    params: dict[tuple[str, ...], Any] = {}
    for index, name in enumerate(sorted(chosen)):
        path, leaf = kernels[name]
        *leading, width, output = leaf.shape
        if rank > min(width, output):
            raise ConfigError(
                f"lora.rank must be at most the shorter side of each kernel, got {rank} and "
                f"{name} {list(leaf.shape)}; lower it, or leave that kernel out of lora.targets"
            )
        draw = jax.random.normal(jax.random.fold_in(rng, index), (*leading, width, rank))
        params[*path, "down"] = (draw / math.sqrt(width)).astype(leaf.dtype)
        params[*path, "up"] = jnp.zeros((*leading, rank, output), leaf.dtype)
    return traverse_util.unflatten_dict(params)


def combine_low_rank(params: Any, frozen: Any, *, scale: float) -> Any:
    """Combines trained and frozen parameters; computes and copies nothing.

    Args:
        params: trained parameters: "down" and "up" at the paths of kernels, from `low_rank_params`,
            and parameters that frozen does not have.
        frozen: the other parameters of the model, including these kernels.
        scale: factor of the low-rank products, alpha / rank.

    Returns:
        Parameters of the model, with a `LowRankKernel` in place of each of these kernels.

    Example:
        >>> params = {"kernel": {"down": jnp.ones((5, 2)), "up": jnp.ones((2, 7))}}
        >>> combined = combine_low_rank(params, {"kernel": jnp.ones((5, 7))}, scale=2.0)
        >>> combined["kernel"].merge()[0].tolist()
        [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    """
    frozen = nn.unbox(frozen)
    if not isinstance(frozen, Mapping):
        return LowRankKernel(frozen, params["down"], params["up"], scale)
    combined = dict(frozen)
    for name, trained in params.items():
        inner = frozen.get(name)
        combined[name] = trained if inner is None else combine_low_rank(trained, inner, scale=scale)
    return combined


def merge_low_rank(params: Any) -> Any:
    """Merges every `LowRankKernel` of a model into one array, with the sharding of its base.

    Args:
        params: the result of `combine_low_rank`; other leaves are returned unchanged.

    Returns:
        Parameters of a model without LoRA.

    Example:
        >>> kernel = LowRankKernel(jnp.eye(2), jnp.ones((2, 1)), jnp.ones((1, 2)), scale=1.0)
        >>> merge_low_rank({"kernel": kernel})["kernel"].tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """

    def merge(leaf: Any) -> Any:
        if not _is_low_rank(leaf):
            return leaf
        return _merge_at(getattr(leaf.base, "sharding", None))(leaf)

    return jax.tree.map(merge, params, is_leaf=_is_low_rank)


@functools.cache
def _merge_at(sharding: jax.sharding.Sharding | None) -> Any:
    return jax.jit(LowRankKernel.merge, out_shardings=sharding)


def _is_low_rank(leaf: Any) -> bool:
    return isinstance(leaf, LowRankKernel)
