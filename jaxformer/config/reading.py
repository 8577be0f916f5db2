"""Configs from nested dicts, such as those of TOML files, with every key and type checked.

An unknown key, in a file or as a flag, is answered with the keys that it may mean.
"""

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from jaxformer.config.checks import TYPE_NAMES, field_types, own_mistakes, union_members
from jaxformer.config.kinds import Kinds, kinds_of, required_keys
from jaxformer.config.schema import ExperimentConfig, source_of_paths
from jaxformer.errors import ConfigError

T = TypeVar("T")

# Names in other programs and papers, and the keys here.
_CALLED_HERE = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "optim": "optimizer.name",
    "warmup": "warmup_steps",
    "epochs": "training.steps",
    "num_epochs": "training.steps",
    "max_steps": "training.steps",
    "max_iters": "training.steps",
    "iterations": "training.steps",
    "num_steps": "training.steps",
    "batch": "batch_size",
    "bs": "batch_size",
    "grad_accum": "accumulate_steps",
    "gradient_accumulation_steps": "accumulate_steps",
    "dim": "d_model",
    "hidden_size": "d_model",
    "embed_dim": "d_model",
    "n_embd": "d_model",
    "width": "d_model",
    "ffn_dim": "d_ff",
    "depth": "num_layers",
    "n_layer": "num_layers",
    "n_layers": "num_layers",
    "n_head": "num_heads",
    "n_heads": "num_heads",
    "context": "max_len",
    "context_length": "max_len",
    "block_size": "max_len",
    "seq_len": "max_len",
    "max_length": "max_len",
    "precision": "model.dtype",
    "tokenizer": "tokenizer.kind",
    "data": "data.paths",
    "dataset": "data.paths",
    "input": "data.paths",
    "file": "data.paths",
    "prompt": "prompts",
    "output": "out",
    "output_dir": "out",
    "save_dir": "out",
    "resume_from": "init_from",
    "checkpoint": "init_from",
    "pretrained": "init_from",
    "finetune": "init_from",
    "gpus": "training.devices",
}

# Sizes of a batch: a config sets one of them, depending on its data.
_ALTERNATIVES = {"batch_size": "batch_tokens", "batch_tokens": "batch_size"}

_MOST = 3


def config_from_dict(kind: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Builds a config dataclass from a nested dict, checking every key and type.

    For a tagged union, a table chooses the config by its discriminator ("kind" or "name"), or is
    of the kind of the field's default without one; a string is shorthand for that kind with its
    defaults.

    Args:
        kind: the dataclass.
        values: contents of a TOML table.
        prefix: prefix of the keys in messages, such as "model.".

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
    try:
        return _read(kind, values, prefix)
    except ConfigError as error:
        count, each = len(error.args), (f"({i}) {one}" for i, one in enumerate(error.args, 1))
        several = f"{count} mistakes: {' '.join(each)}"
        raise ConfigError(several if count > 1 else error.args[0]) from None


def _read(kind: type[T], values: Mapping[str, Any], prefix: str) -> T:
    """Does `config_from_dict`, but raises ConfigError with an argument for each mistake."""
    hints = field_types(kind)
    unknown = [key for key in values if key not in hints]
    mistakes = [f"unknown key {prefix}{key}{_hint(prefix, key, hints)}" for key in unknown]
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        key, hint = prefix + field.name, hints[field.name]
        other = field.metadata.get("unless")
        try:
            if field.name in values:
                value = values[field.name]
                arguments[field.name] = _convert(key, hint, value, default_kind(field))
            elif field.default is dataclasses.MISSING and dataclasses.is_dataclass(hint):
                _convert(key, hint, {})  # names the keys that it must have
            elif field.default is dataclasses.MISSING or (other and other not in values):
                instead = f" or {prefix}{other}" if other else ""
                raise ConfigError(f"missing key {key}{instead} ({_type_name(hint)})")
        except ConfigError as error:
            mistakes += error.args
    wrong: dict[str, str] = {}
    token = own_mistakes.set(wrong)
    try:  # also if keys are missing, with 1 in their place
        made = kind(**dict.fromkeys(required_keys(kind), 1) | arguments)
    except Exception as error:
        if not mistakes and not wrong:  # else it may follow from them
            if not isinstance(error, ConfigError):
                raise
            wrong, arguments = {"": str(error)}, {"": None}
    finally:
        own_mistakes.reset(token)
    section = f"[{prefix.rstrip('.')}] " if prefix else ""
    mistakes += [section + message for name, message in wrong.items() if name in arguments]
    if mistakes:
        raise ConfigError(*mistakes)
    return made


def with_source_of_paths(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds data.source to the contents of an experiment's file with data.paths and no source."""
    data, model, training = (values.get(name) for name in ("data", "model", "training"))
    if not isinstance(data, Mapping) or not data.get("paths") or "source" in data:
        return values
    architecture = model.get("architecture") if isinstance(model, Mapping) else None
    in_rows = isinstance(training, Mapping) and "batch_tokens" in training
    source = source_of_paths(None if architecture is None else str(architecture), in_rows=in_rows)
    return {**values, "data": {**data, "source": source}}


def default_kind(field: dataclasses.Field) -> type | None:
    """Kind of a table that does not name its kind."""
    return type(field.default) if dataclasses.is_dataclass(field.default) else None


def _convert(key: str, hint: Any, value: Any, default_kind: type | None = None) -> Any:
    """Checks a TOML value against a field's type; lists become tuples, and ints floats."""
    if (kinds := kinds_of(hint)) is not None:
        return _convert_union(key, kinds, value, default_kind)
    members = union_members(hint)
    if dataclasses.is_dataclass(members[0]):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} must be a table, got {value!r}")
        return _read(typing.cast(type, members[0]), value, f"{key}.")
    if typing.get_origin(members[0]) is tuple:
        return _convert_list(key, typing.get_args(members[0])[0], value)
    if int in members and isinstance(value, float) and value.is_integer():
        return int(value)
    if float in members and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{key} must be at most 1.8e308, got {value!r}") from None
    if type(value) not in [str if _is_literal(member) else member for member in members]:
        raise ConfigError(f"{key} must be {_type_name(hint, choices=False)}, got {value!r}")
    return value


def _convert_union(key: str, kinds: Kinds, value: Any, default_kind: type | None) -> Any:
    """Config of a tagged union, from a table or from the name of a kind."""
    if isinstance(value, str):
        where, value = key, {kinds.key: value}
    elif isinstance(value, Mapping):
        where = f"{key}.{kinds.key}"
    else:
        names = ", ".join(map(repr, kinds.configs))
        raise ConfigError(f"{key} must be a table, or one of {names}, got {value!r}")
    kind = value.get(kinds.key)
    if kind is None:
        if default_kind is None:
            raise ConfigError(f"missing key {where} (one of {', '.join(kinds.configs)})")
        kind = next(name for name, config in kinds.configs.items() if config is default_kind)
    if not isinstance(kind, str):
        raise ConfigError(f"{where} must be a string, got {kind!r}")
    chosen = kinds.choose(where, kind)
    own = field_types(chosen)
    for name in value:
        if name not in own and (others := kinds.with_key(name)):
            raise ConfigError(
                f"{key}.{name} is for {key} of {kinds.key} {' or '.join(map(repr, others))}, got "
                f"{kinds.key}={kind!r} and {name}={value[name]!r}; remove it, or change {kinds.key}"
            )
    return _read(chosen, value, f"{key}.")


def _convert_list(key: str, element: Any, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        if dataclasses.is_dataclass(element):
            raise ConfigError(f"{key} must be a list of tables, got {value!r}; write [[{key}]]")
        raise ConfigError(f"{key} must be a list, got {value!r}; write [{value!r}]")
    return tuple(_convert(f"{key}[{i}]", element, item) for i, item in enumerate(value))


def _hint(prefix: str, key: str, siblings: Iterable[str]) -> str:
    """End of a message: the keys that may be meant, of this table or another, or all of this."""
    others = (one for one in _dotted_keys(ExperimentConfig) if not prefix.startswith(one))
    near = suggested_keys(key, dict.fromkeys(siblings))
    if near := near or suggested_keys(prefix + key, dict.fromkeys(others)):
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; the keys here are {', '.join(siblings)}"


def _dotted_keys(config: Any, prefix: str = "") -> Iterator[str]:
    for name, hint in field_types(config).items():
        yield prefix + name
        for member in union_members(hint):
            if dataclasses.is_dataclass(member):
                yield from _dotted_keys(member, f"{prefix}{name}.")


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal


def _type_name(hint: Any, *, choices: bool = True) -> str:
    """Type of a value for messages; for a Literal, its choices or 'a string'."""
    if (kinds := kinds_of(hint)) is not None:
        return f"a table, or one of {', '.join(kinds.configs)}"
    members = union_members(hint)
    if len(members) > 1:
        return " or ".join(_type_name(member) for member in members)
    (hint,) = members
    if _is_literal(hint):
        words = typing.get_args(hint)
        if not choices:
            return "a string"
        return repr(words[0]) if len(words) == 1 else "one of " + ", ".join(words)
    return "a table" if dataclasses.is_dataclass(hint) else TYPE_NAMES.get(hint, str(hint))


def suggested_keys(wrong: str, values: Mapping[str, Any]) -> Sequence[str]:
    """Keys of a config that an unknown key may mean, most likely first; at most three.

    A key is found by its name in other programs, its last part, a word in it, or its spelling. Keys
    that the config (values by dotted key) sets come first.
    """
    word = wrong.rpartition(".")[2]
    word = _CALLED_HERE.get(word, word)
    leaves = {key: key.rpartition(".")[2] for key in values}
    found = [key for key, leaf in leaves.items() if word in (key, leaf)]
    if not found:
        near, words = difflib.get_close_matches(wrong, leaves, n=1, cutoff=0.8), word.split("_")
        found = near or [key for key in leaves if set(words) <= set(leaves[key].split("_"))]
    if not found:
        alike = difflib.get_close_matches(word, leaves.values(), n=1, cutoff=0.7)
        found = [key for key in leaves if leaves[key] in alike]
    found = [_alternative(key, values) for key in found]
    return sorted(dict.fromkeys(found), key=lambda key: values[key] is None)[:_MOST]


def _alternative(key: str, values: Mapping[str, Any]) -> str:
    """The alternative to a key that is not set, if the config sets it; else the key."""
    table, dot, leaf = key.rpartition(".")
    other = f"{table}{dot}{_ALTERNATIVES.get(leaf)}"
    return other if values[key] is None and values.get(other) is not None else key
