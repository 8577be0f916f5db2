"""Configs of experiments: frozen dataclasses that check themselves, and their TOML files."""

from jaxformer.config.data import DataConfig, MixtureSourceConfig, SyntheticConfig, TokenizerConfig
from jaxformer.config.depth import DepthRule
from jaxformer.config.experiment import (
    BeamSearchConfig,
    ExperimentConfig,
    SamplesConfig,
    SamplingConfig,
    TranslationConfig,
)
from jaxformer.config.files import (
    changed_settings,
    config_differences,
    config_to_toml,
    load_config,
    ready_configs,
)
from jaxformer.config.model import ModelConfig
from jaxformer.config.model_parts import ExpertsConfig, LayerConfig, MupConfig
from jaxformer.config.optimizers import (
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
    SgdConfig,
)
from jaxformer.config.positions import (
    AlibiConfig,
    LearnedConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    LongropeScalingConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
    RotaryScalingConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from jaxformer.config.reading import config_from_dict
from jaxformer.config.training import (
    MESH_AXES,
    LoopConfig,
    LoraConfig,
    MeshConfig,
    TrainingConfig,
)

__all__ = [
    "MESH_AXES", "AdafactorConfig", "AdamWConfig", "AlibiConfig", "BeamSearchConfig",
    "DataConfig", "DepthRule", "ExperimentConfig", "ExpertsConfig", "LoopConfig", "LayerConfig",
    "LearnedConfig", "LinearScalingConfig", "LionConfig", "LoraConfig", "Llama3ScalingConfig",
    "LongropeScalingConfig", "MeshConfig", "MixtureSourceConfig", "ModelConfig",
    "MuonConfig", "MupConfig", "NoPositionsConfig", "OptimizerConfig", "PositionsConfig",
    "RelativeConfig", "RotaryConfig", "RotaryScalingConfig", "SamplesConfig", "SamplingConfig",
    "ScheduleConfig", "SgdConfig", "SinusoidalConfig", "SyntheticConfig", "TokenizerConfig",
    "TrainingConfig", "TranslationConfig", "YarnScalingConfig", "changed_settings",
    "config_differences", "config_from_dict", "config_to_toml", "load_config", "ready_configs",
]  # fmt: skip
