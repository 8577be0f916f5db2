"""Weights that a run opens or starts from: of a run folder, or of a Hugging Face folder."""

from jaxformer.runs.weights.huggingface import HuggingFaceWeights, is_adapter, is_huggingface
from jaxformer.runs.weights.lora import combine_of
from jaxformer.runs.weights.memory import (
    param_shapes,
    split_shapes,
    state_shapes,
)
from jaxformer.runs.weights.preparing import (
    PreparedRun,
    complete_tables,
    prepare_run,
    prepare_task,
)
from jaxformer.runs.weights.run_folder import RunWeights, load_base, weight_source, write_base
from jaxformer.runs.weights.source import Start, WeightSource
from jaxformer.runs.weights.trials import numbers_of, run_recipe, with_numbers

__all__ = [
    "HuggingFaceWeights",
    "PreparedRun",
    "RunWeights",
    "Start",
    "WeightSource",
    "combine_of",
    "complete_tables",
    "is_adapter",
    "is_huggingface",
    "load_base",
    "numbers_of",
    "param_shapes",
    "prepare_run",
    "prepare_task",
    "run_recipe",
    "split_shapes",
    "state_shapes",
    "weight_source",
    "with_numbers",
    "write_base",
]
