"""Low-rank adaptation of a model: matrices beside its kernels, trained while the rest stays."""

import fnmatch
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import ConfigError
from jaxformer.functional import LowRankKernel

__all__ = ["combine_low_rank", "low_rank_params", "merge_low_rank"]

_SHOWN = 8  # paths in a message


def low_rank_params(base: Any, rng: jax.Array, *, rank: int, targets: Sequence[str]) -> Any:
    r"""Draws the matrices of LoRA that are trained beside kernels of a model.

    Args:
        base: parameters of the model, a nested dict; of arrays or `jax.ShapeDtypeStruct`s.
        rng: PRNG key.
        rank: R.
        targets: patterns of the paths of kernels, such as `*query_kernel`: `*` stands for anything,
            `?` for one character.

    Returns:
        A nested dict, which at the path of each kernel `[..., D, F]` that a pattern matches has
        "down" `[..., D, R]`, drawn from $\mathcal{N}(0, 1/D)$, and "up" `[..., R, F]`, zeros, in
        the dtype of the kernel. So the model starts as its base.

    Raises:
        ConfigError: a pattern matches no kernel, or a kernel has a side shorter than the rank.

    References:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. It draws "down" from
        a Gaussian, whose variance it does not say.

    Example:
        >>> base = {"attention": {"query_kernel": jnp.ones((5, 7)), "query_bias": jnp.ones(7)}}
        >>> params = low_rank_params(base, jax.random.key(0), rank=2, targets=["*query_kernel"])
        >>> jax.tree.map(jnp.shape, params)
        {'attention': {'query_kernel': {'down': (5, 2), 'up': (2, 7)}}}
    """
    kernels = {"/".join(path): (path, leaf) for path, leaf in _kernels(base)}
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
    params: dict[str, Any] = {}
    for index, name in enumerate(sorted(chosen)):
        path, leaf = kernels[name]
        *leading, width, output = leaf.shape
        if rank > min(width, output):
            raise ConfigError(
                f"lora.rank must be at most the shorter side of each kernel, got {rank} and "
                f"{name} {list(leaf.shape)}; lower it, or leave that kernel out of lora.targets"
            )
        draw = jax.random.normal(jax.random.fold_in(rng, index), (*leading, width, rank))
        _put(
            params, path,
            {
                "down": (draw / math.sqrt(width)).astype(leaf.dtype),
                "up": jnp.zeros((*leading, rank, output), leaf.dtype),
            },
        )  # fmt: skip
    return params


def combine_low_rank(params: Any, frozen: Any, *, scale: float) -> Any:
    """Puts what is trained and what is frozen together; nothing is computed or copied.

    Args:
        params: what is trained: "down" and "up" at the paths of kernels, as `low_rank_params` makes
            them, and parameters that frozen does not have.
        frozen: the other parameters of the model, with the kernels.
        scale: of the corrections; alpha / rank.

    Returns:
        Parameters of the model, with a `LowRankKernel` in place of each of these kernels.

    Example:
        >>> params = {"kernel": {"down": jnp.ones((5, 2)), "up": jnp.ones((2, 7))}}
        >>> combined = combine_low_rank(params, {"kernel": jnp.ones((5, 7))}, scale=2.0)
        >>> combined["kernel"].merge()[0].tolist()
        [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    """
    if not isinstance(frozen, Mapping):
        return LowRankKernel(frozen, params["down"], params["up"], scale)
    combined = dict(frozen)
    for name, trained in params.items():
        inner = frozen.get(name)
        combined[name] = trained if inner is None else combine_low_rank(trained, inner, scale=scale)
    return combined


def merge_low_rank(params: Any) -> Any:
    """Merges every `LowRankKernel` of a model into one array, which stays where its base is.

    Args:
        params: as `combine_low_rank` returns them; other leaves are returned as they are.

    Returns:
        Parameters as those of a model without LoRA.

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


def _kernels(params: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Kernels of a nested dict by path: what linear layers multiply by, and no embedding tables."""
    if isinstance(params, Mapping):
        for name in sorted(params):
            yield from _kernels(params[name], (*path, name))
    elif path and path[-1].endswith("kernel") and params.ndim >= 2:
        yield path, params


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
