"""Writes every figure and table of the four documents into a folder, with a page of contents.

Command: python experiments/seeds/run_all.py
         python experiments/seeds/run_all.py --run runs/phrasebook_en_kn   # of a run of your own
"""

import pathlib
import time

import mistakes
import multi_head_and_encoder
import self_attention_by_hand
import self_attention_in_numpy
import trained_translator
import transformer_from_scratch
import tyro
from contents import Contents

from jaxformer import runs
from jaxformer.errors import CheckpointError

__all__ = ["run_all"]

DOCUMENTS = (
    transformer_from_scratch.DOCUMENT,
    self_attention_by_hand.DOCUMENT,
    multi_head_and_encoder.DOCUMENT,
    self_attention_in_numpy.DOCUMENT,
    mistakes.DOCUMENT,
)


def run_all(
    output: pathlib.Path = pathlib.Path("runs/seeds"), run: pathlib.Path | None = None
) -> None:
    """Redo the four documents.

    Args:
        output: Folder for figures, tables and index.html.
        run: Run folder of a trained translator to look into; one is trained, in OUTPUT/translator,
            when not given.
    """
    if run is not None:
        try:
            runs.open_run(run)  # rather than find a mistake after minutes
        except CheckpointError as error:
            raise SystemExit(f"run_all.py: error: {error}") from None
    start = time.monotonic()
    contents = Contents(output)
    for document in DOCUMENTS:
        contents.add(document)
        print(f"{time.monotonic() - start:5.0f} s  {document.title}", flush=True)
    if run is None:
        run = output / "translator"
        runs.train_run(trained_translator.short_config(run))
    contents.add(trained_translator.document(run))
    page = contents.write(
        "Four tutorials, redone",
        "Each step of four tutorials that build a Transformer from scratch, by the public "
        "functions of jaxformer; then the mistakes they make, beside their cures; then what they "
        "lack, a model that was trained.",
    )
    print(f"{time.monotonic() - start:5.0f} s  {page}")


if __name__ == "__main__":
    tyro.cli(run_all)
