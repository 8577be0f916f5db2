"""Standard evaluations by EleutherAI's lm-evaluation-harness, which asks a model for three things.

These are the log-likelihood of a text after another, that of a whole text in windows, and a greedy
continuation up to a stop text. The package lm-eval is imported when it is used.
"""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxformer.config import SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import cross_entropy
from jaxformer.inference import generate_stream
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.text import IGNORE

_ROWS = 8  # sequences that are scored at a time
# Names that tasks give to the largest number of new tokens.
_NEW_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_SAMPLING = {field.name for field in dataclasses.fields(SamplingConfig)} - {"temperature"}
_OPTIONS = {"until", "do_sample", "temperature", *_NEW_TOKENS, *_SAMPLING}


def harness_model(model: LanguageModel) -> Any:
    """A language model for `lm_eval.simple_evaluate(model=..., tasks=[...])`.

    Args:
        model: a model from `open_run`.

    Returns:
        An `lm_eval.api.model.TemplateLM`. Texts have the tokens that transformers gives them, and a
        text without context follows the model's start token, else its end of text. A context that
        is too long loses its first tokens.

    Raises:
        ConfigError: lm-eval is missing.
    """
    try:
        from lm_eval.api.model import TemplateLM
    except ImportError as error:
        raise ConfigError(
            f'standard evaluations need lm-eval: pip install "jaxformer[harness]" ({error})'
        ) from error
    return type("HarnessModel", (_HarnessMethods, TemplateLM), {})(model)


def evaluate_tasks(
    model: LanguageModel,
    tasks: Sequence[str],
    *,
    include: pathlib.Path | None = None,
    limit: int | None = None,
) -> str:
    """Table of the results of tasks, each with its standard error.

    Args:
        model: a model from `open_run`.
        tasks: names of tasks of the harness, such as "lambada_openai".
        include: folder with further tasks, as YAML files.
        limit: largest number of examples of each task; None = all.

    Raises:
        ConfigError: lm-eval is missing, or has no such task.
    """
    harness = harness_model(model)
    import lm_eval
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import make_table

    manager = TaskManager(include_path=None if include is None else str(include))
    if unknown := [task for task in tasks if not manager.match_tasks([task])]:
        raise ConfigError(
            f"lm-eval has no task {', '.join(unknown)}; see its names with: lm-eval ls tasks"
        )
    results = lm_eval.simple_evaluate(
        model=harness, tasks=list(tasks), limit=limit, task_manager=manager
    )
    return str(make_table(results))


@functools.partial(jax.jit, static_argnums=0)
def _score(
    module: Any, params: Any, tokens: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Loss of each label `[B, T]`, and whether it is the likeliest token."""
    logits = module.apply({"params": params}, tokens).logits
    losses, _ = cross_entropy(logits, labels, reduction="none")
    return losses, logits.argmax(axis=-1) == labels


class _HarnessMethods:
    """What `TemplateLM` leaves to a model; its own methods split texts into tokens."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model
        self._rngs = map(
            functools.partial(jax.random.fold_in, jax.random.key(0)), itertools.count()
        )

    @property
    def eot_token_id(self) -> int | None:
        return self.model.tokenizer.end_of_text

    @property
    def prefix_token_id(self) -> int:
        token = next(iter(self.model.surrounding_tokens.before), self.eot_token_id)
        if token is None:
            raise ConfigError(
                "a text without context needs a token before it, got a tokenizer without a start "
                "and an end of text; set tokenizer.end_of_text"
            )
        return token

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        start = () if add_special_tokens is False else self.model.surrounding_tokens.before
        return [*start, *self.model.tokenizer.encode(string).tolist()]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        results = []
        for start in range(0, len(requests), _ROWS):
            results += self._scores([pair for _, *pair in requests[start : start + _ROWS]])
        return results

    def _scores(self, pairs: Sequence[Sequence[list[int]]]) -> list[tuple[float, bool]]:
        """Log-likelihood of the second text of each pair, and whether it is a greedy one."""
        max_tokens = self.model.max_len + 1  # the last one is only predicted
        if (longest := max(len(continuation) for _, continuation in pairs)) >= max_tokens:
            raise ConfigError(
                f"texts to score must have at most max_len={self.model.max_len} tokens, got "
                f"{longest}; choose another task"
            )
        rows = [(context + continuation)[-max_tokens:] for context, continuation in pairs]
        length = 1 << (max(map(len, rows)) - 2).bit_length()  # few lengths, few programs
        tokens = np.zeros((_ROWS, min(length, max_tokens - 1)), np.int32)
        labels = np.full_like(tokens, IGNORE)
        for row, (ids, (_, continuation)) in enumerate(zip(rows, pairs, strict=True)):
            size = len(ids) - 1
            tokens[row, :size], labels[row, :size] = ids[:-1], ids[1:]
            labels[row, : max(0, size - len(continuation))] = IGNORE
        losses, likeliest = jax.device_get(
            _score(self.model.module, self.model.params, tokens, labels)
        )
        greedy = (likeliest | (labels == IGNORE)).all(axis=1)
        return [(-float(losses[row].sum()), bool(greedy[row])) for row in range(len(pairs))]

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        totals = []
        for request in requests:
            windows = get_rolling_token_windows(
                self.tok_encode(request.args[0]),  # with a start token, as for transformers
                prefix_token=self.prefix_token_id, max_seq_len=self.model.max_len, context_len=1,
            )  # fmt: skip
            pairs = [(None, *make_disjoint_window(window)) for window in windows]
            totals.append(sum(nats for nats, _ in self._loglikelihood_tokens(pairs)))
        return totals

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        return [self._continuation(*request.args) for request in requests]

    def _continuation(self, context: str, options: dict[str, Any]) -> str:
        until = options.get("until", [])
        stops = [until] if isinstance(until, str) else until
        new = next((options[name] for name in _NEW_TOKENS if options.get(name)), 256)
        temperature = options.get("temperature", 0.0) if options.get("do_sample", True) else 0.0
        sampling = {name: options[name] for name in _SAMPLING & options.keys()}
        sampling["top_k"] = sampling.get("top_k") or None  # there, 0 is no limit
        for name, value in options.items():
            if name not in _OPTIONS and value not in (None, False, 1):
                raise ConfigError(
                    f"a task must decode greedily or by sampling, got {name}={value!r}; remove it "
                    "from the generation_kwargs of the task"
                )
        room, tokenizer = self.model.max_len, self.model.tokenizer
        ids = (self.tok_encode(context) or [self.prefix_token_id])[min(new - room, -1) :]
        chunks = generate_stream(
            self.model.module, self.model.params, [ids], max_new_tokens=new,
            rng=next(self._rngs),
            sampling=SamplingConfig(temperature=temperature, **sampling),
            stop_tokens=self.model.in_vocabulary(self.model.stop_tokens),
            vocab_size=tokenizer.vocab_size,
            forbidden_tokens=self.model.in_vocabulary(self.model.decoding.forbidden),
        )  # fmt: skip
        continuation: list[int] = []
        text = ""
        for (tokens,) in chunks:
            continuation += tokens.tolist()
            text = tokenizer.decode(continuation)
            if places := [text.find(stop) for stop in stops if stop and stop in text]:
                return text[: min(places)]
        return text
