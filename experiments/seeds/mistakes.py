"""Shows the mistakes of the four documents that change a result, each with its correction.

Run: python experiments/seeds/mistakes.py
"""

from exhibits import MISTAKES
from steps import Document, main

DOCUMENT = Document(
    name="mistakes",
    title="A museum of mistakes",
    source="The four tutorials, each mistake under the title of its own. Line numbers are those of "
    "their plain text.",
    about=f"The {len(MISTAKES)} mistakes of the four documents that change a result: what they "
    "compute, what is right, and what the library does so that nobody makes them again.",
    steps=[mistake.as_step() for mistake in MISTAKES],
)

if __name__ == "__main__":
    main(DOCUMENT)
