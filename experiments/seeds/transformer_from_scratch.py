"""The tutorial "Transformer From Scratch", each step redone with the library.

From tokens to the next token's logits, in the tutorial's order. Its printed numbers come out
again where they follow from printed inputs; where it is wrong, the text of the step says how.

Run: python experiments/seeds/transformer_from_scratch.py
"""

import from_scratch_attention
import from_scratch_blocks
import from_scratch_heads
import from_scratch_inputs
import from_scratch_positions
from steps import Document, main

DOCUMENT = Document(
    name="transformer_from_scratch",
    title="Transformer From Scratch",
    source='"Transformer From Scratch", a notebook that does not name its author. Line numbers are '
    "those of its plain text.",
    about="Tokens, embeddings, positions, attention, heads, masks, norms, blocks, the next token.",
    steps=[
        *from_scratch_inputs.STEPS,
        *from_scratch_positions.STEPS,
        *from_scratch_attention.STEPS,
        *from_scratch_heads.STEPS,
        *from_scratch_blocks.STEPS,
    ],
)

if __name__ == "__main__":
    main(DOCUMENT)
