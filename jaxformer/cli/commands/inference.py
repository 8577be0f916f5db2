"""jaxformer generate, translate and predict."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jaxformer import errors
from jaxformer.cli.inputs import Lines, Opening, open_for
from jaxformer.cli.parsing import option
from jaxformer.cli.terminal import show
from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.config.checks import PositiveInt

if TYPE_CHECKING:
    from jaxformer.runs import Run, Translation, TranslationModel

_CHUNK = 64  # lines per update of the progress bar


def _texts() -> Any:
    return option(
        (), positional=True, metavar="[TEXT ...]",
        shown="each line of --file or of standard input",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generate(Opening):
    """Continue texts with a trained language model.

    Prints each text with its continuation, and an empty line between two texts. Sampling uses the
    settings under [samples] in the run's config. Flags override single settings.

    Args:
        texts: texts to continue.
        chat: treat each text as a message and answer it, using the model's chat template.
        max_new_tokens: maximum length of the continuation, in tokens.
        seed: random seed.
    """

    settings: ClassVar[type] = SamplingConfig

    texts: tuple[str, ...] = option(
        (), positional=True, metavar="[TEXT ...]", shown="the first prompt in [samples]"
    )
    chat: bool = False
    max_new_tokens: int | None = option(
        None, shown="what fits in the context; Hugging Face folder: its limit, or 256"
    )
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translate(Opening):
    r"""Translate sentences with a trained encoder-decoder.

    Standard output gets one translation per input line, in order. If a line cannot be translated,
    for example because it is empty, its output line is empty and standard error names it. With
    a --num-best above 1, each output line is a score, a tab and a translation; an empty line ends
    each sentence. A line break inside a translation is written as \n. Standard error names words
    that the model never saw in training.

    Beam search uses the settings under [translation] in the run's config, but returns one
    translation per sentence. Flags override single settings.

    Args:
        texts: sentences to translate.
        file: UTF-8 text file with one sentence per line; may be compressed, such as .gz.
        temperature: above 0: sample tokens at this temperature instead of using beam search.
        seed: random seed for sampling.
    """

    settings: ClassVar[type] = BeamSearchConfig

    texts: tuple[str, ...] = _texts()
    file: pathlib.Path | None = option(None, shown="none")
    temperature: float = 0.0
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predict(Opening):
    r"""Fill in [MASK] in texts, or label texts with a classifier.

    Each prediction is one line of tab-separated fields. A classifier prints the probability and the
    label. A masked language model prints the number of the mask, the probability and the token. A
    model that scores texts, such as a reranker, prints scores (logits) instead of probabilities. An
    empty line ends the predictions of each text. If an input line cannot be used, for example
    because it is empty, its output is an empty line and standard error names it. A predicted line
    break is written as \n.

    Args:
        texts: texts to predict for.
        file: UTF-8 text file with one text per line; may be compressed, such as .gz.
        num_best: number of predictions to print for each mask or text, most likely first. A model
            that scores texts prints all scores.
    """

    texts: tuple[str, ...] = _texts()
    file: pathlib.Path | None = option(None, shown="none")
    num_best: PositiveInt = 3


def generate(command: Generate, sampling: Mapping[str, Any]) -> None:
    """Prints each text, then streams its continuation or the answer to it."""
    from jaxformer import runs, text

    run = open_for(command)
    run.require(runs.AnsweringModel if command.chat else runs.CausalModel, user="generate")
    longest, seed = command.max_new_tokens, command.seed
    for index, prompt in enumerate(command.texts or run.config.samples.prompts[:1] or ("",)):
        if command.chat:
            message = text.Message(role="user", content=prompt)
            pieces = run.chat_stream([message], max_new_tokens=longest, seed=seed, **sampling)
        else:
            pieces = run.generate_stream(prompt, max_new_tokens=longest, seed=seed, **sampling)
        first = next(pieces)  # raises for a mistake, before the prompt is printed
        before = "\n" if index else ""
        behind = "\n" if command.chat else run.model.behind_prompt
        show(before + prompt + behind + first, end="", at_once=True)
        for piece in pieces:
            show(piece, end="", at_once=True)
        show()


def translate(command: Translate, search: Mapping[str, Any]) -> None:
    """Prints the translations of sentences, or of every line of input."""
    from jaxformer import runs

    run = open_for(command)
    model = run.require(runs.TranslationModel, user="translate")
    if command.temperature == 0:
        if command.seed != 0:
            raise errors.ConfigError(
                f"--seed={command.seed} only affects sampling; give a --temperature, or remove it"
            )
        _translate_by_search(run, model, command, search)
        return
    if search:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in sorted(search))
        raise errors.ConfigError(
            f"--temperature={command.temperature:g} samples instead of using beam search; remove "
            f"{flags}, or the temperature"
        )
    _translate_by_draws(run, command)


def _translate_by_search(
    run: "Run", model: "TranslationModel", command: Translate, search: Mapping[str, Any]
) -> None:
    from jaxformer.runs.use.options import with_options

    search = {"num_best": 1, **search}
    with_options(BeamSearchConfig, run.config.translation, search)  # checks before reading lines
    lines = Lines(command.texts, command.file, "translated", run.encode)
    results = run.translate_stream(lines.good, **search)
    unfinished = 0

    def format_best(translations: "list[Translation]") -> str:
        nonlocal unfinished
        unfinished += not translations[0].finished
        if search["num_best"] == 1:
            return _on_one_line(translations[0].text)
        return "".join(f"{best.score:.4f}\t{_on_one_line(best.text)}\n" for best in translations)

    lines.print_in_order((index, format_best(best)) for index, best in results)
    if unfinished:
        show(
            f"jaxformer: {unfinished:,} of {len(lines.good):,} translations did not end "
            f"within {model.max_new_tokens} tokens",
            error=True,
        )


def _translate_by_draws(run: "Run", command: Translate) -> None:
    from jaxformer.runs.use.options import with_options

    temperature = command.temperature
    with_options(SamplingConfig, run.config.samples, {"temperature": temperature})  # as above
    lines = Lines(command.texts, command.file, "translated", run.encode)
    drawn = run.sample_translations_stream(lines.good, seed=command.seed, temperature=temperature)
    lines.print_in_order((index, _on_one_line(text)) for index, text in drawn)


def predict(command: Predict) -> None:
    """Prints the predictions for texts, or for every line of input."""
    from jaxformer.runs import ClassifierModel, MaskedModel

    run = open_for(command)
    model = run.require(MaskedModel, ClassifierModel, user="predict")
    lines = Lines(command.texts, command.file, "predicted for", model.check_prompt)

    def predictions(texts: list[str]) -> list[str]:
        if isinstance(model, ClassifierModel) and model.gives_scores:
            scores = [zip(row, model.classes, strict=True) for row in run.score(texts)]
            return ["".join(f"{score:.4f}\t{name}\n" for score, name in row) for row in scores]
        if isinstance(model, ClassifierModel):
            labels = run.classify(texts, command.num_best)
            return ["".join(f"{c.probability:.4f}\t{c.name}\n" for c in best) for best in labels]
        return [
            "".join(
                f"{number}\t{fill.probability:.4f}\t{_on_one_line(fill.text)}\n"
                for number, best in enumerate(masks, 1)
                for fill in best
            )
            for masks in run.fill_masks(texts, command.num_best)
        ]

    starts = range(0, len(lines.good), _CHUNK)
    lines.print_in_order(
        (index, block)
        for start in starts
        for index, block in enumerate(predictions(lines.good[start : start + _CHUNK]), start)
    )


def _on_one_line(text: str) -> str:
    """Escapes line breaks, which a model may generate, so that a result stays one line."""
    return text.replace("\n", "\\n").replace("\r", "\\r")
