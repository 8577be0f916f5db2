"""The commands and their options, as tyro reads them."""

import dataclasses
import pathlib
from typing import Annotated, Any, Literal, Union

import tyro

from jaxformer.cli.opening_flags import Opening, RunFolder
from jaxformer.cli.plot_commands import Plot
from jaxformer.config import SamplingOptions, SearchOptions

__all__ = [
    "Configs",
    "Convert",
    "Evaluate",
    "Generate",
    "Inspect",
    "Plan",
    "Predict",
    "Prepare",
    "Train",
    "Translate",
    "Verify",
    "all_commands",
]

_Config = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG")]
_Text = Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT]")]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a model from a config, or resume its run.

    Any key of the config can be overridden: jaxformer train CONFIG --optimizer.learning-rate 3e-4.
    jaxformer train CONFIG --help lists them all, with the config's values.
    """

    config: _Config
    """Config file, or the name of a built-in config, such as quickstart; jaxformer configs lists
    them."""


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Read, split and tokenize the data of a config.

    jaxformer train does the same before its first step. Text of more than 64 MiB becomes token
    files, in memory that does not grow with it; what a run
    that was stopped has done is kept. Any key of the config can be overridden behind its path:
    jaxformer prepare CONFIG --data.paths "corpus/*.jsonl.gz" --data.cache /data/tokens
    """

    config: _Config
    """Config file, or the name of a built-in config."""


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Show the data and a batch of a config, or the state of a run.

    The data is prepared as jaxformer train prepares it for a new run: lengths, words and bytes per
    token, what validation and training share, and rows of the batch, decoded. Keys of the config
    can be overridden as in jaxformer train. No model is made, and no run folder. Of a run folder:
    its config and data, its checkpoints, and what can be done next.
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG|RUN")]
    """Config file, name of a built-in config, or run folder, such as runs/quickstart."""

    step: int = 0
    """Step of the batch, from 0: the one that training takes at that step on these devices."""

    rows: int = 3
    """How many rows of the batch to show."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Plan memory and time on accelerators you need not have.

    Nothing of the model is allocated, and no data is read. Keys of the config can be overridden
    as in jaxformer train. For TPUs the step is compiled by their compiler, which comes with
    jaxformer[tpu]. The status is 1 where the step does not fit, else 0.
    """

    config: _Config
    """Config file, or the name of a built-in config."""

    accelerator: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """A100, H100, H200, B200, v4, v5e, v5p or v6e."""

    devices: int | None = None
    """Number of GPUs; as many as the mesh of the config needs when not given."""

    topology: str | None = None
    """Chips of a TPU slice in each direction, such as 4x4, or 2x2x1 for v4 and v5p."""

    utilization: float = 0.4
    """Share of the peak FLOP/s that is reached, for the time that training takes."""


@dataclasses.dataclass(frozen=True)
class Configs:
    """List the built-in configs, or print one to save and change."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """Config to print, such as quickstart."""


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continue a prompt with a trained language model.

    Tokens are sampled as the run's config says under [samples]; flags replace single settings.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart; or a folder of Hugging Face."""

    prompt: Annotated[str | None, tyro.conf.arg(metavar="PROMPT")] = None
    """Text to continue; the first prompt of the run's own samples when not given."""

    chat: bool = False
    """Take the prompt as a message to answer, as the chat template of the model has it."""

    max_new_tokens: int | None = None
    """Length of the longest continuation, in tokens; when not given what fits the context, or of a
    folder of Hugging Face what it says, else 256."""

    sampling: tyro.conf.OmitArgPrefixes[SamplingOptions] = dataclasses.field(
        default_factory=SamplingOptions
    )

    seed: int = 0
    """Seed of the random draws."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Translate:
    r"""Translate sentences with a trained encoder-decoder.

    Standard output has one translation for every line of input, in its order; a line that cannot
    be translated, such as an empty one, gives an empty line, and is named on standard error. With
    --num-best above 1, each translation is a line of its score, a tab and the text, and an empty
    line ends those of a sentence. A line break within a translation is written as \n.
    Words that were never seen in training are named on standard error.

    Beam search is as the run's config says under [translation], but for one translation of each
    sentence; flags replace single settings.
    """

    run: RunFolder
    """Run folder, such as runs/phrasebook_en_kn; or a folder of Hugging Face."""

    text: _Text = None
    """Sentence to translate; when not given, each line of the file or of standard input is one."""

    file: pathlib.Path | None = None
    """Text file with a sentence in each line, UTF-8, also .gz."""

    search: tyro.conf.OmitArgPrefixes[SearchOptions] = dataclasses.field(
        default_factory=SearchOptions
    )

    temperature: float = 0.0
    """Above 0, tokens are sampled, from logits divided by this, instead of beam search."""

    seed: int = 0
    """Seed of the random draws."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Predict:
    r"""Fill in [MASK] in texts, or label texts with a classifier.

    Each prediction is a line: of a classifier, the probability, a tab and the label; of a masked
    language model, the number of the mask, the probability and the token, with tabs between. A
    model that scores texts, such as a reranker, prints its scores, which are logits and no
    probabilities, in place of probabilities. An empty line ends those of a text. A line of input
    that cannot be used, such as an empty one, gives an empty line alone, and is named on standard
    error. A line break that is predicted is written as \n.
    """

    run: RunFolder
    """Run folder, such as runs/masked_python; or a folder of Hugging Face."""

    text: _Text = None
    """Text to predict for; when not given, each line of the file or of standard input is one."""

    file: pathlib.Path | None = None
    """Text file with a text in each line, UTF-8, also .gz."""

    num_best: int = 3
    """How many predictions to print for each mask or text, the likeliest first. Scores, as of a
    reranker, are all printed."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a trained run on its validation data, or other data.

    Of every run the loss; of a translator BLEU and chrF (with jaxformer[eval]) and the share of
    exact translations, of a classifier the accuracy.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart; or a folder of Hugging Face."""

    data: tuple[pathlib.Path, ...] = ()
    """Files to measure it on instead, read as its training data was: text files, a TSV file of
    pairs or an aligned file of each language, or TSV files of text, tab, label."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Convert:
    """Convert a run to a Hugging Face folder, or back.

    transformers, and what else reads its format, can load the folder that a run becomes, where a
    family there computes what the model does. Of a target that ends in .safetensors, the file gets
    the parameters alone, under their own paths, and a .toml beside it the model's config.
    """

    source: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """Run folder; or a folder of Hugging Face, or the id of a model there, OWNER/MODEL."""

    target: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """Folder to make, or file that ends in .safetensors."""

    step: int | None = None
    """Checkpoint of a run to use; the one with the lowest validation loss when not given."""

    model_type: str | None = None
    """Family to write, such as llama; when not given, the one that the model was loaded from, or
    else the first that computes what the model does."""

    dtype: Literal["float32", "bfloat16"] | None = None
    """Dtype of what is written; that of the parameters when not given."""

    ignore: tuple[str, ...] = ()
    """Of a folder of Hugging Face: fields of its JSON files that are known not to matter."""

    source_language: str | None = None
    """Of a folder of Hugging Face whose model translates several languages: the one that is read,
    such as eng_Latn or en."""

    target_language: str | None = None
    """Likewise the one that is written, such as kan_Knda or kn."""

    base: pathlib.Path | None = None
    """Of a run with LoRA, where the run or folder lies now whose weights it has matrices beside;
    where it was in training when not given."""


@dataclasses.dataclass(frozen=True)
class Verify:
    """Verify by SHA-256 that no file of a run has changed.

    Prints a line for the run folder and for each checkpoint: good, or what is wrong with it. The
    status is 1 where anything is damaged, else 0. Metrics, samples and figures are not compared.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart."""


def all_commands(*, brief: bool) -> Any:
    """The commands for tyro; in brief, with the first line of what each says of itself."""
    kinds: tuple[type, ...] = (Configs, Train, Prepare, Plan, Inspect, Generate, Translate, Predict,
                               Evaluate, Convert, Verify, Plot)  # fmt: skip
    says = {kind: str(kind.__doc__).partition("\n")[0] if brief else None for kind in kinds}
    named = [
        Annotated[kind, tyro.conf.subcommand(kind.__name__.lower(), description=says[kind])]
        for kind in kinds
    ]
    return Union[*named]
