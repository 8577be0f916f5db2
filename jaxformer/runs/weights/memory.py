"""Memory that a training needs, compared with what there is before it starts."""

import jax

from jaxformer.errors import ConfigError
from jaxformer.memory import readable_bytes
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.shapes import split_shapes, state_shapes
from jaxformer.training.parallel import Runner


def require_training_memory(model: TextModel, runner: Runner) -> None:
    """Raises ConfigError if a run cannot be trained in the available memory; a lower estimate."""
    config = model.config
    state, (trained, frozen) = state_shapes(model), split_shapes(model)
    neighbors = () if frozen is None else (frozen,)  # which the rules of a mesh may name, too
    gradients = runner.num_bytes(trained, *neighbors)
    tokens = _tokens_per_device(model, runner)
    width = config.model.d_model * jax.numpy.dtype(config.model.dtype).itemsize
    batch = tokens * (config.training.accumulate_steps * 8 + width * config.model.num_layers)
    needs = {
        "parameters": gradients + (0 if frozen is None else runner.num_bytes(frozen, trained)),
        "gradients": gradients,
        "optimizer": runner.num_bytes(state, *neighbors) - gradients,
        "a batch and the inputs of the layers": batch,
    }
    if sum(needs.values()) > runner.memory:
        parts = ", ".join(f"{name} {readable_bytes(size)}" for name, size in needs.items())
        raise ConfigError(
            f"training needs at least {readable_bytes(sum(needs.values()))} of memory on each of "
            f"{runner.num_local_devices} devices ({parts}), got {readable_bytes(runner.memory)}; "
            "lower the model's sizes, training.batch_size or batch_tokens, model.max_len or "
            "training.cpu_devices, or raise training.accumulate_steps"
        )


def _tokens_per_device(model: TextModel, runner: Runner) -> int:
    """Lower bound of the positions of a micro-batch on a device, including padding."""
    training = model.config.training
    if training.batch_size is not None:
        total = training.batch_size * model.max_len
    else:
        assert training.batch_tokens is not None  # the config requires one of the two
        # Rounding to whole rows, and to rows per device, may each halve it.
        total = training.batch_tokens // 4
    parts = runner.num_shards * runner.num_sequence_parts
    return total // (parts * training.accumulate_steps)
