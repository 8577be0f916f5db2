"""All variants, and those that are tested wherever tests run."""

from tests.interop.decoder_variants import DECODERS
from tests.interop.encoder_decoder_variants import ENCODER_DECODERS
from tests.interop.encoder_variants import ENCODERS

VARIANTS = DECODERS | ENCODERS | ENCODER_DECODERS

# What computes, or is stored, in a way of its own; the others are tested once.
QUICK = (
    "gpt2-older", "opt-post-norm", "gpt_neox-sequential", "llama-biases", "llama-yarn-mscale",
    "qwen2-window", "smollm3-list", "phi3-partial", "olmo2", "gemma3_text-older", "qwen2_moe",
    "qwen3_moe", "glm4_moe-groups", "falcon-two-norms",
    "bert", "roberta-classes", "modernbert-mean-classes", "marian", "m2m_100", "t5-gated",
    "umt5-encoder",
)  # fmt: skip
