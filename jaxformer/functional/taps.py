"""Taps: arrays inside a model that a call reads or edits, by the name of their place."""

import copy
import dataclasses
import difflib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import ConfigError, ShapeError

_Edit = Callable[[jax.Array, jax.Array], jax.Array]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Taps:
    """Places inside a model that a call reads or edits.

    Every layer has these places. Arrays that are read are read after edits.

    - "inputs": float `[B, T, D]`, the vectors that the layer gets. Those of layer 0 are embeddings.
    - "scores": float32 `[B, N, T, S]`, attention scores: scaled, capped, biased, and not yet
      masked, so that an edit cannot unmask. At masked positions they mean nothing.
    - "weights": float32 `[B, N, T, S]`, attention weights, before dropout.
    - "head_outputs": float `[B, T, N, Hv]`, the output of each head, before the output projection.
    - "attention_output": float `[B, T, D]`, after the output projection.
    - "feed_forward_activations": float `[B, T, F]`, after the nonlinearity (and the gate), before
      the down projection; not in a mixture of experts.
    - "feed_forward_output": float `[B, T, D]`, after the down projection.
    - "hidden": float `[B, T, D]`, the vectors that the layer returns, before the final norm.

    Cross-attention has "cross_scores", "cross_weights", "cross_head_outputs" and
    "cross_attention_output". In an `EncoderDecoder`, names are of the decoder, unless they start
    with "encoder/", as in "encoder/hidden".

    For jit, Taps are a pytree without leaves. Every new function in `edit` compiles a new program.

    Args:
        read: places whose arrays the output's `taps` holds, stacked over layers.
        edit: functions by place: `edit(x, layer)` returns what replaces x, in its shape and dtype.
            `layer` is an int array `[]`, traced in a scan: select with `jnp.where`. Attention whose
            scores or weights are edited is dense, whatever the config says.

    References:
        Alain and Bengio, "Understanding Intermediate Layers Using Linear Classifier Probes", 2016;
        Michel et al., "Are Sixteen Heads Really Better than One?", 2019 (ablation); Meng et al.,
        "Locating and Editing Factual Associations in GPT", 2022 (patching).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxformer.config import ModelConfig
        >>> from jaxformer.models import Decoder
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Decoder(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> ablate = lambda x, layer: jnp.where(layer == 1, x.at[:, :, 0].set(0), x)
        >>> taps = Taps(read=("hidden",), edit={"head_outputs": ablate})
        >>> jax.jit(model.apply)(variables, tokens, taps=taps).taps["hidden"].shape
        (2, 1, 3, 4)
    """

    read: Sequence[str] = ()
    edit: Mapping[str, _Edit] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the types, and makes both fields immutable."""
        if not isinstance(self.read, tuple | list):
            raise ConfigError(f'read must be names of places, as ("hidden",), got {self.read!r}')
        if not isinstance(self.edit, Mapping) or not all(map(callable, self.edit.values())):
            raise ConfigError(f"edit must be a dict from places to functions, got {self.edit!r}")
        object.__setattr__(self, "read", tuple(self.read))
        object.__setattr__(self, "edit", types.MappingProxyType(dict(self.edit)))

    def __hash__(self) -> int:
        """Hash by places, and by the identity of the functions."""
        return hash((self.read, frozenset(self.edit.items())))

    def split(self, prefix: str) -> tuple["Taps", "Taps"]:
        """The taps of places under a prefix, which is removed, and the other taps."""

        def part(inside: bool) -> Taps:
            read = [p.removeprefix(prefix) for p in self.read if p.startswith(prefix) == inside]
            edit = {p: f for p, f in self.edit.items() if p.startswith(prefix) == inside}
            return Taps(read, {p.removeprefix(prefix): f for p, f in edit.items()})

        return part(True), part(False)


def check_taps(taps: Any) -> set[str]:
    """Places that the argument `taps` of a model's call names; checks its type."""
    if taps is None:
        return set()
    if not isinstance(taps, Taps):
        raise ConfigError(
            f'taps must be a models.Taps, as Taps(read=("hidden",)), got {type(taps).__name__}'
        )
    return {*taps.read, *taps.edit}


class LayerTaps:
    """The taps of one call of a layer, which calls it at every place.

    Your own modules can add places: `x = x if tap is None else tap("my_place", x)`.

    Args:
        taps: what is read and edited.
        layer: index of the layer, for the edits.

    Example:
        >>> import jax.numpy as jnp
        >>> tap = LayerTaps(Taps(read=("hidden",), edit={"hidden": lambda x, layer: 2 * x}), 0)
        >>> tap("hidden", jnp.ones(2)).tolist(), tap("scores", jnp.ones(2)).tolist()
        ([2.0, 2.0], [1.0, 1.0])
        >>> list(tap.values)
        ['hidden']
    """

    def __init__(self, taps: Taps, layer: Any) -> None:
        self.taps, self.layer, self.prefix = taps, layer, ""
        self.values: dict[str, jax.Array] = {}
        self._seen: dict[str, None] = {}

    def __call__(self, place: str, x: jax.Array) -> jax.Array:
        """The array at a place, edited, and kept in `values` if it is read."""
        place = self.prefix + place
        self._seen[place] = None
        if place in self.taps.edit:
            edited = self.taps.edit[place](x, jnp.asarray(self.layer, jnp.int32))
            got = getattr(edited, "shape", None), getattr(edited, "dtype", None)
            if got != (x.shape, x.dtype):
                raise ShapeError(
                    f"the edit of {place!r} must return shape {x.shape} and dtype {x.dtype}, like "
                    f"its x, got {type(edited).__name__} with {got[0]} and {got[1]}"
                )
            x = edited
        if place in self.taps.read:
            self.values[place] = x
        return x

    def within(self, prefix: str) -> "LayerTaps":
        """The same taps, for places whose names get a prefix."""
        inner = copy.copy(self)
        inner.prefix = prefix
        return inner

    def asks(self, *places: str) -> bool:
        """Whether any of these places is read or edited; a layer computes some only then."""
        names = {self.prefix + place: None for place in places}
        self._seen.update(names)
        return not names.keys().isdisjoint(check_taps(self.taps))

    def edits(self, *places: str) -> bool:
        """Whether any of these places is edited."""
        return any(self.prefix + place in self.taps.edit for place in places)

    def check_all_found(self, block: str, *, is_custom: bool) -> None:
        """Checks, after a layer ran, that it had every place; is_custom: a user's class."""
        for place in sorted(check_taps(self.taps) - self._seen.keys()):
            near = difflib.get_close_matches(place, self._seen, n=1)
            remedy = f"; did you mean {near[0]!r}?" if near else ""
            if is_custom:
                remedy += "; more places need an argument tap of its call, passed to its layers"
            raise ConfigError(
                f"taps must name places of this {block}: {', '.join(self._seen)}; got {place!r}"
                + remedy
            )
