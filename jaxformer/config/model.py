"""The config of a model: a frozen dataclass that checks itself."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import require, require_choices, require_positive
from jaxformer.errors import ConfigError

__all__ = ["ModelConfig"]

Float = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a Transformer; hashable, so that Flax modules can hold it.

    Args:
        architecture: which model; "decoder" is the causal language model.
        vocab_size: number of token ids; the tokenizer's when not given.
        max_len: longest sequence in tokens; also the training window.
        num_layers: number of blocks.
        d_model: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key/value heads, a divisor of num_heads; num_heads when not given.
        head_dim: width of a query and key head; d_model / num_heads when not given.
        value_head_dim: width of a value head; head_dim when not given.
        d_ff: hidden width of the feed-forward layer; 4 * d_model when not given.
        positions: how a token's position enters the model.
        rotary_base: base of the rotary frequencies.
        rotary_layout: which features form a rotated pair: i and i + H/2 ("half", as in
            GPT-NeoX and Llama) or 2i and 2i + 1 ("interleaved", as in the RoFormer paper).
        norm: kind of normalization.
        norm_position: before each sublayer ("pre") or after its residual sum ("post").
        norm_eps: added to the variance.
        activation: of the feed-forward layer; swiglu and geglu add a gate projection.
        use_bias: whether projections and layer norms have biases.
        tied_embeddings: whether the output projection is the embedding table.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        init_std: standard deviation of initial weights; those of projections into the residual
            stream are divided by sqrt(2 * num_layers) (Radford et al., GPT-2, 2019).
        dropout_rate: on embeddings, attention weights and sublayer outputs.
        dtype: of the computation.
        param_dtype: of the parameters.
        remat: what the backward pass recomputes: nothing, all but matrix products, or all.
        scan_layers: whether the blocks are one `nn.scan` with stacked parameters (compiles once)
            or a Python loop (decodes faster).
    """

    architecture: Literal["decoder"] = "decoder"
    vocab_size: int | None = None
    max_len: int
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    d_ff: int | None = None
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "rotary"
    rotary_base: float = 10_000.0
    rotary_layout: Literal["half", "interleaved"] = "half"
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_position: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-5
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"] = "gelu"
    use_bias: bool = True
    tied_embeddings: bool = True
    scale_embeddings: bool = False
    init_std: float = 0.02
    dropout_rate: float = 0.0
    dtype: Float = "float32"
    param_dtype: Float = "float32"
    remat: Literal["none", "dots", "full"] = "none"
    scan_layers: bool = True

    def __post_init__(self) -> None:
        require_choices(self)
        require_positive(
            self, "vocab_size", "max_len", "num_layers", "d_model", "num_heads", "num_kv_heads",
            "head_dim", "value_head_dim", "d_ff", "rotary_base", "norm_eps", "init_std",
        )  # fmt: skip
        require(
            0 <= self.dropout_rate < 1,
            "dropout_rate must be in [0, 1)",
            dropout_rate=self.dropout_rate,
        )
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                "d_model must be a multiple of num_heads, got "
                f"d_model={self.d_model} and num_heads={self.num_heads}; "
                "change one of them, or set head_dim"
            )
        require(
            self.num_heads % self.kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads",
            num_heads=self.num_heads,
            num_kv_heads=self.kv_heads,
        )
        if self.positions == "rotary" and self.key_dim % 2:
            raise ConfigError(
                f"rotary positions need an even head_dim, got head_dim={self.key_dim}; "
                "change d_model, num_heads or head_dim"
            )

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads, the default filled in."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def key_dim(self) -> int:
        """Width of a query and key head, the default filled in."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def value_dim(self) -> int:
        """Width of a value head, the default filled in."""
        return self.key_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def ff_dim(self) -> int:
        """Hidden width of the feed-forward layer, the default filled in."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff
