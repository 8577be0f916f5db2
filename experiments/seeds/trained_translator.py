"""Attention of a trained translator on a sentence of the documents, which have no such model."""

import dataclasses
import pathlib

import matplotlib
import numpy as np
from steps import Document, Shown, Step, Table

from jaxformer import runs, viz
from jaxformer.config import ExperimentConfig, load_config
from jaxformer.training import read_metrics

__all__ = ["SENTENCE", "document", "short_config"]

matplotlib.rcParams["font.family"] = ["DejaVu Sans", "Noto Sans Kannada"]

SENTENCE = "my name is prathamesh"
"""The sentence that the fourth document wants translated into Kannada."""

_STEPS = 300
_CONFIG = pathlib.Path(__file__).parents[2] / "configs" / "phrasebook_en_kn.toml"


def short_config(
    out: pathlib.Path, sentence: str = SENTENCE, steps: int = _STEPS
) -> ExperimentConfig:
    """Config of a training on the English-Kannada phrasebook of about a minute.

    Args:
        out: run folder to train in.
        sentence: to translate at each validation.
        steps: of the optimizer.
    """
    config = load_config(_CONFIG)
    replace = dataclasses.replace
    return replace(
        config,
        out=str(out),
        schedule=replace(config.schedule, warmup_steps=min(100, steps), decay_steps=steps),
        training=replace(
            config.training, steps=steps, log_every=10, eval_every=50, checkpoint_every=steps
        ),
        translation=replace(config.translation, metrics_pairs=100),
        samples=replace(config.samples, prompts=(sentence,)),
    )


def document(folder: pathlib.Path, sentence: str = SENTENCE) -> Document:
    """Document with the attention of a trained translator.

    Args:
        folder: its run folder.
        sentence: to translate.

    Raises:
        CheckpointError: the folder is no run folder.
        ConfigError: its run is of another kind.
        DataError: the run cannot translate the sentence.
    """
    model = runs.open_run(folder).require(runs.Translator)
    maps = {attention_map.name: attention_map for attention_map in model.attention(sentence)}
    cross = maps["cross-attention"]
    translation = model.translate([sentence])[0][0].text

    def training_curve() -> Shown:
        records = read_metrics(folder)
        scored = [record for record in records if "validation_loss" in record]
        names = [name for name in ("validation_loss", "bleu", "exact") if name in scored[-1]]
        cells = [[float(record[name]) for name in names] for record in scored]
        return Shown(
            "The losses of an encoder-decoder in nats per token, while it was trained. That of "
            "training includes dropout and label smoothing; the validation loss is of the model "
            "alone, on pairs that were not trained on. The table has it with the share of exact "
            "translations and BLEU, where the run measured them.",
            tables={
                "Validation": Table(names, [f"step {record['step']}" for record in scored], cells)
            },
            figures={"training_curve": viz.loss_curves({folder.name: records})},
            captions={"training_curve": "Training and validation loss over the optimizer's steps."},
        )

    def alignment() -> Shown:
        figure = viz.attention_heatmaps(
            np.asarray(cross.weights).mean((0, 1)), cross.query_tokens, cross.key_tokens,
            label="attention weight, mean of all layers and heads",
            title=f"{sentence} → {translation}",
        )  # fmt: skip
        return Shown(
            f"The decoder writes “{translation}”, a token at a time, from the end of text that it "
            "starts with. A row is a token that it reads, and has the weights of the source's "
            "tokens while the next token is predicted: the mean over all layers and heads.",
            figures={"cross_attention": figure},
            captions={
                "cross_attention": "Which source tokens the decoder looks at after each token that "
                "it has written, in the mean of all layers and heads."
            },
        )

    def every_head() -> Shown:
        names = {f"{name.replace('-', ' ').replace(' ', '_')}_of_every_head": name for name in maps}
        return Shown(
            "Every layer and head, of the three kinds of attention that an encoder-decoder has. "
            "The decoder's own is lower-triangular, as it may not see what it has yet to write; "
            "the encoder's and the cross-attention are not.",
            figures={
                stem: viz.attention_heatmaps(
                    maps[name].weights, maps[name].query_tokens, maps[name].key_tokens,
                    title=name,
                )
                for stem, name in names.items()
            },
            captions={
                stem: f"The {name} of “{sentence}”: layers are rows, heads are columns."
                for stem, name in names.items()
            },
        )  # fmt: skip

    def viewer() -> Shown:
        page = viz.attention_page(list(maps.values()), title=sentence)
        return Shown(
            "The same weights in a page: pick a layer and a head, point at a token, and see where "
            "it looks. `jaxformer plot attention RUN TEXT` writes such a page.",
            pages={"attention": page},
        )

    return Document(
        name="trained_translator",
        title="A trained translator",
        source="None of the four tutorials.",
        about="What the documents do not show: attention after training.",
        steps=(
            Step(
                "Training curve", None, training_curve,
                r"\mathrm{validation\ loss} = "
                r"-\dfrac{1}{T} \sum_t \log p(y_t\,|\,y_1 \dots y_{t - 1},\ x)",
            ),
            Step(
                "Cross-attention of a translation", None, alignment,
                r"\bar{W}_{ts} = \dfrac{1}{L N} \sum_{l, n} W^{l n}_{ts}",
            ),
            Step(
                "Attention of every layer and head", None, every_head,
                r"W^{l n} = "
                r"\mathrm{softmax}\left(\dfrac{Q_{l n} K_{l n}^{\mathsf{T}}}{\sqrt{d_k}}\right)",
            ),
            Step("Interactive attention viewer", None, viewer),
        ),
    )  # fmt: skip
