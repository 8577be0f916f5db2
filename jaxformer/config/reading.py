"""Configs from nested dicts, such as those of TOML files, with every key and type checked."""

import copy
import dataclasses
import difflib
import functools
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jaxformer.config.checks import TYPE_NAMES, Key, keys_of
from jaxformer.config.experiment import ExperimentConfig
from jaxformer.errors import ConfigError

T = TypeVar("T")

# Names in other programs and papers, and the keys here.
_CALLED_HERE = {
    name: key
    for key, names in {
        "learning_rate": "lr",
        "weight_decay": "wd",
        "optimizer.name": "optim",
        "warmup_steps": "warmup",
        "training.steps": "epochs num_epochs max_steps max_iters iterations num_steps",
        "batch_size": "batch bs",
        "accumulate_steps": "grad_accum gradient_accumulation_steps",
        "d_model": "dim hidden_size embed_dim n_embd width",
        "d_ff": "ffn_dim",
        "num_layers": "depth n_layer n_layers",
        "num_heads": "n_head n_heads",
        "max_len": "context context_length block_size seq_len max_length",
        "model.dtype": "precision",
        "tokenizer.kind": "tokenizer",
        "data.paths": "data dataset input file",
        "prompts": "prompt",
        "out": "output output_dir save_dir",
        "init_from": "resume_from checkpoint pretrained finetune",
        "training.devices": "gpus",
    }.items()
    for name in names.split()
}

_MOST = 3


def config_from_dict(kind: type[T], values: Mapping[str, Any]) -> T:
    """Builds a config dataclass from a nested dict, checking every key and type.

    For a tagged union, a table chooses the config by its discriminator ("kind" or "name"), or is
    of the kind of the field's default without one; a string is shorthand for that kind with its
    defaults.

    Args:
        kind: the dataclass.
        values: contents of a TOML table.

    Raises:
        ConfigError: a key is unknown, missing, of the wrong type or impossible.

    Example:
        >>> from jaxformer.config import ModelConfig, TokenizerConfig
        >>> config_from_dict(TokenizerConfig, {"kind": "byte"}).kind
        'byte'
        >>> sizes = {"max_len": 8, "num_layers": 1, "d_model": 4, "num_heads": 2}
        >>> positions = {"kind": "relative", "max_distance": 64}
        >>> config_from_dict(ModelConfig, {**sizes, "positions": positions}).positions
        RelativeConfig(kind='relative', num_buckets=32, max_distance=64, table=0)
    """
    reader = _Reader()
    config = reader.table(kind, values, "")
    if mistakes := reader.mistakes:
        listed = " ".join(f"({number}) {mistake}" for number, mistake in enumerate(mistakes, 1))
        raise ConfigError(
            listed[4:] if len(mistakes) == 1 else f"{len(mistakes)} mistakes: {listed}"
        )
    return typing.cast(T, config)


def with_values(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of an experiment with values merged into them, by dotted key; None unsets a key."""
    merged, keys = copy.deepcopy(dict(tables)), config_keys()
    unions = {f"{key}.{owner.tag}": key for key, owner in keys.items() if owner.kinds}
    values = {unions.get(dotted, dotted): value for dotted, value in values.items()}
    # A kind begins its table anew, so it comes before the other keys of the table.
    for dotted in sorted(values, key=lambda dotted: (dotted not in unions.values(), dotted)):
        *names, last = dotted.split(".")
        table = merged
        for depth, name in enumerate(names, 1):
            key, inner = keys.get(".".join(names[:depth])), table.get(name, {})
            if key is not None and key.kinds and isinstance(inner, str):
                inner = {key.tag: inner}
            if not isinstance(inner, dict):
                inner = {}  # a mistake, which is replaced
            table[name] = inner
            table = inner
        table.pop(last, None)
        if values[dotted] is not None:
            table[last] = values[dotted]
    return merged


def with_source_of_paths(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds data.source to the contents of an experiment's file with data.paths and no source."""
    data, model, training = (values.get(name, {}) for name in ("data", "model", "training"))
    tables = (data, model, training)
    if not all(isinstance(table, Mapping) for table in tables) or not data.get("paths"):
        return values
    source = "pairs" if model.get("architecture") == "encoder_decoder" else "files"
    if model.get("architecture") == "encoder" and "batch_tokens" in training:
        source = "labelled"
    return {**values, "data": {"source": source, **data}}


class _Reader:
    """Builds configs from tables, and collects the mistakes in them."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def table(self, kind: type, values: Mapping[str, Any], prefix: str) -> Any:
        """Config of a table; None if it has a mistake, or a table in it."""
        before, keys, arguments = len(self.mistakes), keys_of(kind), {}
        for name in values:
            if name not in keys:
                self.mistakes.append(f"unknown key {prefix}{name}{_hint(prefix, name, keys)}")
        for name, key in keys.items():
            where, other = prefix + name, key.metadata.get("unless")
            if name in values:
                arguments[name] = self._noted("", self.value, where, key, values[name])
            elif key.default is dataclasses.MISSING and key.table is not None:
                self.table(key.table, {}, f"{where}.")  # names the keys that it must have
            elif key.default is dataclasses.MISSING or (other and other not in values):
                instead = f" or {prefix}{other}" if other else ""
                what = TYPE_NAMES.get(key.members[0], "a list")  # of keys without a default
                self.mistakes.append(f"missing key {where}{instead} ({what})")
        if len(self.mistakes) > before:
            return None
        return self._noted(prefix.removesuffix("."), lambda: kind(**arguments))

    def value(self, where: str, key: Key, value: Any) -> Any:
        """Value of a key; ConfigError for a wrong one, but None for a table with mistakes."""
        if key.kinds:
            return self._of_kind(where, key, value)
        if key.table is not None:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where} must be a table, got {value!r}")
            return self.table(key.table, value, f"{where}.")
        if (element := key.element) is not None:
            if not isinstance(value, list | tuple):
                kind, remedy = "list", repr(value)
                if element.table is not None:
                    kind, remedy = "list of tables", f"[{where}]"
                raise ConfigError(f"{where} must be a {kind}, got {value!r}; write [{remedy}]")
            return tuple(
                self._noted("", self.value, f"{where}[{index}]", element, item)
                for index, item in enumerate(value)
            )
        return key._replace(name=where).checked(value)

    def _of_kind(self, where: str, key: Key, value: Any) -> Any:
        """Config of a tagged union, from a table or from the name of a kind."""
        if not isinstance(value, Mapping):
            return self.table(key.choose(where, value), {}, f"{where}.")
        kind, place = value.get(key.tag, getattr(key.default, key.tag, None)), f"{where}.{key.tag}"
        if kind is None:
            raise ConfigError(f"missing key {place} (one of {', '.join(key.kinds)})")
        config = key.choose(place, kind)
        for name in value:
            owners = [kind for kind, owner in key.kinds.items() if name in keys_of(owner)]
            if owners and name not in keys_of(config):
                raise ConfigError(
                    f"{where}.{name} is for {where} of {key.tag} {' or '.join(map(repr, owners))}, "
                    f"got {key.tag}={kind!r} and {name}={value[name]!r}; remove it, or change "
                    f"{key.tag}"
                )
        return self.table(config, value, f"{where}.")

    def _noted(self, table: str, read: Callable[..., Any], *arguments: Any) -> Any:
        """Result of a function; its mistake is noted, with the name of a table."""
        try:
            return read(*arguments)
        except ConfigError as error:
            self.mistakes.append(f"[{table}] {error}" if table else str(error))
            return None


def _hint(prefix: str, name: str, siblings: Iterable[str]) -> str:
    """End of a message: the keys that may be meant, of this table or another, or all of this."""
    elsewhere = (key for key, _ in dotted_keys(ExperimentConfig) if not prefix.startswith(key))
    near = suggested_keys(name, siblings)
    if near := near or suggested_keys(prefix + name, elsewhere):
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; the keys here are {', '.join(siblings)}"


@functools.cache
def config_keys() -> dict[str, Key]:
    """All keys of an experiment but arrays of tables; those of several kinds have one type."""
    keys: dict[str, Key] = {}
    for dotted, key in dotted_keys(ExperimentConfig):
        if not key.is_array:
            keys.setdefault(dotted, key)
    return keys


def dotted_keys(config: type, prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Keys of a config class and of all tables in it, of every kind, the default first."""
    for name, key in keys_of(config).items():
        yield prefix + name, key
        for member in sorted(key.members, key=lambda kind: kind is not type(key.default)):
            if dataclasses.is_dataclass(member):
                yield from dotted_keys(typing.cast(type, member), f"{prefix}{name}.")


def suggested_keys(wrong: str, known: Iterable[str]) -> Sequence[str]:
    """At most three keys that an unknown key may mean, those of other programs among them."""
    word = wrong.rpartition(".")[2]
    word = _CALLED_HERE.get(word, word)
    leaves = {key: key.rpartition(".")[2] for key in known}
    keys = [key for key, leaf in leaves.items() if word in (key, leaf)]
    if not keys:
        near, words = difflib.get_close_matches(wrong, leaves, n=1, cutoff=0.8), word.split("_")
        keys = near or [key for key in leaves if set(words) <= set(leaves[key].split("_"))]
    if not keys:
        near = difflib.get_close_matches(word, leaves.values(), n=1, cutoff=0.7)
        keys = [key for key in leaves if leaves[key] in near]
    return keys[:_MOST]
