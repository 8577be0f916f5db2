"""All variants, and those that are tested wherever tests run."""

from tests.interop.decoder_variants import DECODERS
from tests.interop.encoder_decoder_variants import ENCODER_DECODERS
from tests.interop.encoder_variants import ENCODERS

VARIANTS = DECODERS | ENCODERS | ENCODER_DECODERS

# The first of every family, and what computes in a way of its own.
QUICK = [name for name, variant in VARIANTS.items() if name == variant.model_type] + [
    "gpt2-older", "opt-post-norm", "gpt_neox-sequential", "llama-biases", "llama-llama3",
    "llama-yarn-mscale", "mistral-window", "qwen2-window", "smollm3-list", "phi3-partial",
    "gemma3_text-linear", "gemma3_text-older",
]  # fmt: skip
