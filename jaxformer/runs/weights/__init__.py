"""Weights that a run opens or starts from: of a run folder, or of a Hugging Face folder."""

from jaxformer.runs.weights.huggingface import HuggingFaceWeights, is_huggingface
from jaxformer.runs.weights.run_folder import RunWeights, load_base, weight_source, write_base
from jaxformer.runs.weights.source import Start, WeightSource
from jaxformer.runs.weights.start_config import PreparedRun, complete_tables, prepare_run

__all__ = [
    "HuggingFaceWeights",
    "PreparedRun",
    "RunWeights",
    "Start",
    "WeightSource",
    "complete_tables",
    "is_huggingface",
    "load_base",
    "prepare_run",
    "weight_source",
    "write_base",
]
