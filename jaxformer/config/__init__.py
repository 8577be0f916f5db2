"""Every setting of an experiment, checked; read from and written as TOML."""

from jaxformer.config.data import DataConfig, SyntheticConfig, TokenizerConfig
from jaxformer.config.decoding import SamplesConfig, SamplingConfig, TranslationConfig
from jaxformer.config.files import (
    config_differences,
    config_from_dict,
    config_to_toml,
    load_config,
)
from jaxformer.config.loop import LoopConfig
from jaxformer.config.model import ModelConfig
from jaxformer.config.rotary import RotaryScalingConfig
from jaxformer.config.schema import (
    ExperimentConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainingConfig,
)

__all__ = [
    "DataConfig",
    "ExperimentConfig",
    "LoopConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RotaryScalingConfig",
    "SamplesConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "SyntheticConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TranslationConfig",
    "config_differences",
    "config_from_dict",
    "config_to_toml",
    "load_config",
]
