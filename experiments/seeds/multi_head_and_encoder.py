"""The tutorial "Multi-Headed Attention", each step redone with the library.

One batch through multi-head attention from a fused projection; then positions, layer norm,
and an encoder of the sizes given at the end of the tutorial.

Run: python experiments/seeds/multi_head_and_encoder.py
"""

import encoder_steps
import fused_heads_steps
from steps import Document, main

DOCUMENT = Document(
    name="multi_head_and_encoder",
    title="Multi-Headed Attention",
    source='"Multi-Headed Attention", a notebook that does not name its author. Line numbers are '
    "those of its plain text.",
    about="One batch of 30 sentences of 50 tokens through multi-head attention, step by step; "
    "positions, layer norm, and an encoder of 5 layers.",
    steps=[*fused_heads_steps.STEPS, *encoder_steps.STEPS],
)

if __name__ == "__main__":
    main(DOCUMENT)
