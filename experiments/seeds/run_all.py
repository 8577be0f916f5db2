"""Writes every step of the four documents as pages, with formulas, code, figures and tables.

Run: python experiments/seeds/run_all.py

With a translator that `jaxformer train configs/phrasebook_en_kn.toml` has trained already:

     python experiments/seeds/run_all.py --run runs/phrasebook_en_kn
"""

import argparse
import contextlib
import importlib.util
import pathlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

import jax
import mistakes
import multi_head_and_encoder
import self_attention_by_hand
import self_attention_in_numpy
import trained_translator
import transformer_from_scratch
from contents import Contents, drafted

from jaxformer import runs
from jaxformer.errors import CheckpointError, ConfigError, DataError

__all__ = ["main", "run_all"]

DOCUMENTS = (
    transformer_from_scratch.DOCUMENT,
    self_attention_by_hand.DOCUMENT,
    multi_head_and_encoder.DOCUMENT,
    self_attention_in_numpy.DOCUMENT,
    mistakes.DOCUMENT,
)


class _Stopped(BaseException):
    """A signal to stop has come; not an `Exception`, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)


def run_all(
    output: pathlib.Path = pathlib.Path("runs/seeds"),
    run: pathlib.Path | None = None,
    sentence: str = trained_translator.SENTENCE,
) -> None:
    """Redo the four documents.

    Args:
        output: Folder for the pages, their figures and tables; index.html has the contents.
        run: Run folder of a trained translator; when not given, one is trained on the phrasebook,
            in OUTPUT/translator.
        sentence: What it translates.
    """
    start = time.monotonic()

    def report(text: object) -> None:
        print(f"{time.monotonic() - start:5.0f} s  {text}", flush=True)

    _require("matplotlib", *(["sacrebleu"] if run is None else []))
    # The translator comes first, as it is what can be impossible: its folder, or the sentence.
    if run is None:
        run = output / "translator"
        result = runs.train_run(trained_translator.short_config(run, sentence))
        if result.stop_signal is not None:
            raise _Stopped(result.stop_signal)
    documents = (*DOCUMENTS, trained_translator.document(run, sentence))
    with drafted(output) as draft:
        contents = Contents(draft)
        for document in documents:
            # On a GPU too, digits are then those of float32.
            with jax.default_matmul_precision("highest"):
                contents.add(document)
            report(document.title)
        contents.write(
            "Four tutorials, redone",
            "Each step of four tutorials that build a Transformer from scratch, by the public "
            "functions of jaxformer; then the mistakes they make, beside their cures; then what "
            "they lack, a model that was trained. Line numbers are those of the tutorials as plain "
            "text. The code is what made the figures and tables beside it; where `...` is the "
            "first argument of `Shown`, it stands for the text above.",
        )
    report(output / "index.html")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Redo the four documents.")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("runs/seeds"))
    parser.add_argument("--run", type=pathlib.Path, help="run folder of a trained translator")
    parser.add_argument("--sentence", default=trained_translator.SENTENCE)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; exits with 128 plus the number of a signal that stopped it.

    Args:
        arguments: words after the script's name; those of the process when not given.
    """
    try:
        with _stopped_by_signals():
            run_all(**vars(_parser().parse_args(arguments)))
    except _Stopped as stop:
        print(
            f"run_all.py: stopped by {stop.signal.name} before the pages were whole, so none was "
            "written; run the same command again (a translator's training goes on where it was)",
            file=sys.stderr,
        )
        sys.exit(128 + stop.signal)
    except (CheckpointError, ConfigError, DataError, OSError) as error:
        raise SystemExit(f"run_all.py: error: {error}") from None


def _require(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the pages need {' and '.join(packages)}, got no {' and no '.join(missing)}; "
            'pip install "jaxformer[viz,eval]"'
        )


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    def stop(number: int, _: FrameType | None) -> None:
        raise _Stopped(number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
