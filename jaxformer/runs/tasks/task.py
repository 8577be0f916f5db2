"""Tasks: the data that a run trains a text model on."""

import abc
import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import DataError
from jaxformer.runs.data.prepare import cache_dir, train_tokenizer
from jaxformer.runs.data.view import DataView, plain_text, real_tokens
from jaxformer.runs.folder.files import VALIDATION, DataSummary
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.training import Evaluation, TrainingData, evaluate, make_eval_step
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner


class Split(NamedTuple):
    """Result of `Task.read`: the data before encoding.

    Args:
        train: for a `TableTask`, a `text.Corpus`; for a `StreamTask`, sources of text by name.
        validation: validation rows, a `text.Table`; None for a `StreamTask`.
        validation_counts: counts of the validation rows read and dropped, if some were.
    """

    train: Any
    validation: Any = None
    validation_counts: text.Counts | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Task(abc.ABC):
    """The data of a run, and the model that is trained on it.

    `prepare` makes a task from a config before training. The built-in tasks are subclasses of
    `StreamTask` (documents, cut into windows) and `TableTask` (rows of text, such as pairs). Both
    leave only a few methods to write. To change a task, override what differs: `read` for another
    data source, `text_model` for another model.

    Attributes:
        text_model: the kind of model that is trained.
        marks: how to read the texts of `row_texts`, in one line.

    Args:
        model: the model, with config and tokenizers.
        summary: summary of the training data, stored in the run folder.
        train: encoded training data; None in an opened run.
        validation: encoded validation data; None in an opened run.
        source: weights that the run starts from, a `WeightSource`; None for random ones.
    """

    model: TextModel
    summary: DataSummary = DataSummary()
    train: Any = None
    validation: Any = None
    source: Any = None

    text_model: ClassVar[type[TextModel]]
    marks: ClassVar[str] = ""

    @classmethod
    def prepare(cls, config: ExperimentConfig, start: TextModel | None = None) -> Self:
        """Reads the data, makes tokenizers, and completes the config with what the data decides.

        Args:
            config: the experiment.
            start: model of the run to resume, or to start from; its tokenizers are reused. None
                for new tokenizers.

        Returns:
            The task, ready to train.

        Raises:
            ConfigError: the config is impossible with this data.
            DataError: the data cannot be used, or a prompt of the samples does not fit.
        """
        data = cls.read(config)
        tokenizers = cls.make_tokenizers(config, data) if start is None else start.tokenizers
        model = cls.text_model.create(config, tokenizers)
        model = model if start is None else model.started_from(start)
        task = cls(model=model).with_data(data)
        for prompt in task.config.samples.prompts:
            try:
                task.model.check_prompt(prompt)
            except DataError as error:
                raise DataError(f"samples.prompts has {prompt!r}: {error}") from None
        return task

    # A subclass must define these.

    @classmethod
    @abc.abstractmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads training and validation data. Override it for another source.

        Raises:
            ConfigError: the config does not say where the data is.
            DataError: the data cannot be used.
        """

    @classmethod
    @abc.abstractmethod
    def training_texts(
        cls, split: Split, config: ExperimentConfig
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Training and validation texts for training a tokenizer."""

    @abc.abstractmethod
    def with_data(self, data: Split) -> Self:
        """Encodes the result of `read`, and fills in summary, report and prompts."""

    @abc.abstractmethod
    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes the training batches, for the devices and hosts of the runner."""

    @abc.abstractmethod
    def validation_batches(self, validation: Any, runner: Runner) -> Any:
        """Makes the validation batches, whose method `once` yields each one."""

    @abc.abstractmethod
    def load_validation(self, folder: pathlib.Path) -> Any:
        """Reads and encodes the validation data of a run folder."""

    @abc.abstractmethod
    def read_validation(self, paths: Sequence[str]) -> Any:
        """Reads files in the same way as the config's data, and encodes them."""

    # The rest follows from these.

    @property
    def config(self) -> ExperimentConfig:
        """The experiment, completed with what the data decides."""
        return self.model.config

    @property
    def tokenizer(self) -> text.Tokenizer:
        """The tokenizer; that of the targets if there are two."""
        return self.model.tokenizer

    @property
    def max_len(self) -> int:
        """Largest number of tokens that the model reads at once."""
        return self.model.max_len

    @classmethod
    def make_tokenizers(cls, config: ExperimentConfig, data: Split) -> tuple[text.Tokenizer, ...]:
        """Trains the tokenizers of a new run."""
        texts, added = cls.training_texts(data, config), cls.text_model.added_tokens(config)
        return (train_tokenizer(config.tokenizer, *texts, cache_dir(config.data), added),)

    def with_config(self, config: ExperimentConfig) -> Self:
        """The task, with another config."""
        return dataclasses.replace(self, model=dataclasses.replace(self.model, config=config))

    def with_prompts(self, prompts: Sequence[str]) -> Self:
        """The task, with these prompts of samples if its config has none."""
        samples = self.config.samples
        chosen = samples.prompts or tuple(prompts)
        samples = dataclasses.replace(samples, prompts=chosen)
        return self.with_config(dataclasses.replace(self.config, samples=samples))

    def data_view(self) -> DataView:
        """Describes the prepared data for `inspect_data`; override it to say more."""
        return DataView()

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Texts of the first rows of a batch, by name, such as "source" and "target".

        Args:
            batch: training batch.
            count: number of rows; fewer if the others are padding.
        """
        if "tokens" not in batch:
            return []
        masks = zip(batch["tokens"], real_tokens(batch), strict=True)
        rows = [ids[is_real] for ids, is_real in masks if is_real.any()]
        return [{"text": plain_text(self.tokenizer, ids)} for ids in rows[:count]]

    def save(self, folder: pathlib.Path) -> None:
        """Writes what opening a run needs into its folder: the model and validation data."""
        self.model.save(folder)

    def num_bytes(self, validation: Any) -> int | None:
        """UTF-8 bytes of the predicted text; None if bits per byte make no sense."""
        return None

    def evaluation_data(self, validation: Any, runner: Runner) -> TrainingData:
        """Makes validation batches, without training batches."""
        return TrainingData(
            batches=(),
            unit=self.model.unit,
            validation=self.validation_batches(validation, runner).once,
            validation_bytes=self.num_bytes(validation),
        )

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes training and validation batches, for the devices of the runner."""
        data = self.evaluation_data(self.validation, runner)
        batches = self.training_batches(runner)
        return data._replace(batches=batches, scores=self.training_scores())

    def shuffled_batches(self, rows: text.Rows | text.Mixture, runner: Runner) -> text.Batches:
        """Makes batches of rows of one length, in a new order in every epoch."""
        assert self.config.training.batch_size is not None  # the config requires it of such rows
        size = self.config.training.batch_size
        return text.Batches(rows, size, seed=self.config.seed, host=runner.host)

    def ordered_batches(self, rows: text.Rows, runner: Runner) -> text.Batches:
        """Makes batches of the size of a micro-batch, which is known to fit in memory."""
        training = self.config.training
        assert training.batch_size is not None
        size = math.lcm(training.batch_size // training.accumulate_steps, runner.num_shards)
        return text.Batches(rows, size, host=runner.host)

    def training_scores(self) -> Callable[[Any], dict[str, float]] | None:
        """Makes a function of the parameters that scores the validation data; None for none."""
        return None

    @classmethod
    def evaluate(cls, model: TextModel, paths: Sequence[str] | None) -> Evaluation:
        """Measures an opened model on files, or on its run's validation data without any."""
        task = cls(model=model)
        if paths is not None:
            validation = task.read_validation(paths)
        elif model.folder is not None and (model.folder / VALIDATION).exists():
            validation = task.load_validation(model.folder)
        else:
            raise DataError(
                f"{model.folder} has no validation data, since it was not trained here; name files "
                "with data"
            )
        data = task.evaluation_data(validation, model.runner)
        assert data.validation is not None
        runner = model.runner
        step = make_eval_step(model.loss(0.0), axis_name=runner.axis_name)
        result = evaluate(
            runner.compile_eval(step), model.params, data.validation(), data.validation_bytes,
            data.unit,
        )  # fmt: skip
        result = model.with_scores(result, validation)
        counts = getattr(validation, "counts", None)  # of rows; some may be unusable
        if paths is None or counts is None:
            return result
        return result._replace(details=(str(counts), *result.details))
