"""Every setting of an experiment, checked; read from and written as TOML."""

from jaxformer.config.files import (
    config_differences,
    config_from_dict,
    config_to_toml,
    load_config,
)
from jaxformer.config.model import ModelConfig, RotaryScalingConfig
from jaxformer.config.schema import (
    DataConfig,
    ExperimentConfig,
    OptimizerConfig,
    SamplesConfig,
    SamplingConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
)

__all__ = [
    "DataConfig",
    "ExperimentConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RotaryScalingConfig",
    "SamplesConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "config_differences",
    "config_from_dict",
    "config_to_toml",
    "load_config",
]
