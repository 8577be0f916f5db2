"""jaxformer generate, translate and predict."""

import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from jaxformer.cli.inputs import Lines, Opening
from jaxformer.cli.terminal import show
from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.config.checks import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from jaxformer.runs import TextModel, Translation


def generate(
    run: pathlib.Path,
    texts: tuple[str, ...] = (),
    *,
    chat: bool = False,
    max_new_tokens: int | None = None,
    seed: NonNegativeInt = 0,
    opening: Opening,
    sampling: Annotated[Mapping[str, Any], SamplingConfig],
) -> None:
    """Continue texts with a trained language model.

    Prints each text with its continuation, and an empty line between two texts. Sampling uses the
    settings under [samples] in the run's config. Flags override single settings.

    Args:
        run: run folder, such as runs/quickstart, or Hugging Face folder.
        texts: texts to continue; the first prompt in [samples] if there is none.
        chat: treat each text as a message and answer it, using the model's chat template.
        max_new_tokens: maximum length of the continuation, in tokens; what fits in the context if
            not set, or for a Hugging Face folder its limit, or 256.
        seed: random seed.
    """
    from jaxformer import runs, text

    model = opening.open(run).require(runs.LanguageModel)
    options = {"max_new_tokens": max_new_tokens, "seed": seed, **sampling}
    for index, prompt in enumerate(texts or model.config.samples.prompts[:1] or ("",)):
        if chat:
            message = text.Message(role="user", content=prompt)
            pieces = model.chat_stream([message], **options)
        else:
            pieces = model.generate_stream(prompt, **options)
        first = next(pieces)  # raises for a mistake, before the prompt is printed
        before = "\n" if index else ""
        behind = "\n" if chat else model.behind_prompt
        show(before + prompt + behind + first, end="", at_once=True)
        for piece in pieces:
            show(piece, end="", at_once=True)
        show()


def translate(
    run: pathlib.Path,
    texts: tuple[str, ...] = (),
    *,
    file: pathlib.Path | None = None,
    opening: Opening,
    search: Annotated[Mapping[str, Any], BeamSearchConfig],
) -> None:
    r"""Translate sentences with a trained encoder-decoder.

    Standard output gets one translation per input line, in order. If a line cannot be translated,
    for example because it is empty, its output line is empty and standard error names it. With
    a --num-best above 1, each output line is a score, a tab and a translation; an empty line ends
    each sentence. A line break inside a translation is written as \n.

    Beam search uses the settings under [translation] in the run's config, but returns one
    translation per sentence. Flags override single settings.

    Args:
        run: run folder, such as runs/reverse, or Hugging Face folder.
        texts: sentences to translate; each line of --file or of standard input if there is none.
        file: UTF-8 text file with one sentence per line; may be compressed, such as .gz.
    """
    from jaxformer.runs import Translator

    model = opening.open(run).require(Translator)
    lines = Lines(texts, file, "translated", model.encode)
    search = {"num_best": 1, **search}

    def shown(translations: "list[Translation]") -> str:
        if search["num_best"] == 1:
            return _on_one_line(translations[0].text)
        return "".join(f"{best.score:.4f}\t{_on_one_line(best.text)}\n" for best in translations)

    results = model.translate_stream(lines.good, **search)
    lines.print_in_order((index, shown(translations)) for index, translations in results)


def predict(
    run: pathlib.Path,
    texts: tuple[str, ...] = (),
    *,
    file: pathlib.Path | None = None,
    num_best: PositiveInt = 3,
    opening: Opening,
) -> None:
    r"""Fill in [MASK] in texts, or label texts with a classifier.

    Each prediction is one line of tab-separated fields. A classifier prints the probability and the
    label. A masked language model prints the number of the mask, the probability and the token. A
    model that scores texts, such as a reranker, prints scores (logits) instead of probabilities. An
    empty line ends the predictions of each text. If an input line cannot be used, for example
    because it is empty, its output is an empty line and standard error names it. A predicted line
    break is written as \n.

    Args:
        run: run folder, such as runs/masked_python, or Hugging Face folder.
        texts: texts to predict for; each line of --file or of standard input if there is none.
        file: UTF-8 text file with one text per line; may be compressed, such as .gz.
        num_best: number of predictions to print for each mask or text, most likely first. A model
            that scores texts prints all scores.
    """
    from jaxformer.runs import Classifier, MaskedModel

    model = opening.open(run).require(MaskedModel, Classifier)
    lines = Lines(texts, file, "predicted for", model.check_prompt)
    lines.print_in_order(enumerate(_predictions(model, lines.good, num_best)))


def _predictions(model: "TextModel", texts: list[str], num_best: int) -> Iterator[str]:
    """The lines of each text."""
    from jaxformer.runs import Classifier, MaskedModel

    match model:
        case MaskedModel():
            for masks in model.fill_masks(texts, num_best):
                yield "".join(
                    f"{number}\t{fill.probability:.4f}\t{_on_one_line(fill.text)}\n"
                    for number, best in enumerate(masks, 1)
                    for fill in best
                )
        case Classifier(gives_scores=True):
            for scores in model.score(texts):
                named = zip(scores, model.classes, strict=True)
                yield "".join(f"{score:.4f}\t{name}\n" for score, name in named)
        case Classifier():
            for classes in model.classify(texts, num_best):
                yield "".join(f"{c.probability:.4f}\t{c.name}\n" for c in classes)


def _on_one_line(text: str) -> str:
    """Escapes line breaks, which a model may generate, so that a result stays one line."""
    return text.replace("\n", "\\n").replace("\r", "\\r")
