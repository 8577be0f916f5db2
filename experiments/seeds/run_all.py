"""Writes every figure and table of the four documents into a folder, with a page of contents.

Command: python experiments/seeds/run_all.py
         python experiments/seeds/run_all.py --run runs/phrasebook_en_kn   # already trained
"""

import pathlib
import time

import jax
import mistakes
import multi_head_and_encoder
import self_attention_by_hand
import self_attention_in_numpy
import trained_translator
import transformer_from_scratch
import tyro
from contents import Contents

from jaxformer import runs
from jaxformer.errors import CheckpointError, ConfigError, DataError

__all__ = ["run_all"]

DOCUMENTS = (
    transformer_from_scratch.DOCUMENT,
    self_attention_by_hand.DOCUMENT,
    multi_head_and_encoder.DOCUMENT,
    self_attention_in_numpy.DOCUMENT,
    mistakes.DOCUMENT,
)


def run_all(
    output: pathlib.Path = pathlib.Path("runs/seeds"),
    run: pathlib.Path | None = None,
    sentence: str = trained_translator.SENTENCE,
) -> None:
    """Redo the four documents.

    Args:
        output: Folder for figures, tables and index.html.
        run: Run folder of a trained translator; when not given, one is trained on the phrasebook,
            in OUTPUT/translator.
        sentence: What it translates.
    """
    start = time.monotonic()
    # Before the rest, so that a mistake is not found after minutes.
    trained = None if run is None else trained_translator.document(run, sentence)
    contents = Contents(output)
    # On a GPU too, digits are then those of float32.
    with jax.default_matmul_precision("highest"):
        for document in DOCUMENTS:
            contents.add(document)
            print(f"{time.monotonic() - start:5.0f} s  {document.title}", flush=True)
    if trained is None:
        config = trained_translator.short_config(output / "translator")
        runs.train_run(config)
        trained = trained_translator.document(output / "translator", sentence)
    contents.add(trained)
    page = contents.write(
        "Four tutorials, redone",
        "Each step of four tutorials that build a Transformer from scratch, by the public "
        "functions of jaxformer; then the mistakes they make, beside their cures; then what they "
        "lack, a model that was trained. Line numbers are those of the tutorials as plain text.",
    )
    print(f"{time.monotonic() - start:5.0f} s  {page}")


if __name__ == "__main__":
    try:
        tyro.cli(run_all)
    except (CheckpointError, ConfigError, DataError) as error:
        raise SystemExit(f"run_all.py: error: {error}") from None
