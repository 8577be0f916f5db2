"""Configs of experiments: frozen dataclasses that check themselves, and their TOML files."""

from jaxformer.config.data import DataConfig, SyntheticConfig
from jaxformer.config.decoding import (
    BeamSearchConfig,
    SamplesConfig,
    SamplingConfig,
    SamplingOptions,
    SearchOptions,
    TranslationConfig,
)
from jaxformer.config.experts import ExpertsConfig
from jaxformer.config.files import changed_settings, config_differences, config_to_toml, load_config
from jaxformer.config.layers import LayerConfig
from jaxformer.config.loop import LoopConfig
from jaxformer.config.lora import LoraConfig
from jaxformer.config.mesh import MESH_AXES, MeshConfig, MeshRule
from jaxformer.config.mixture import MixtureSourceConfig
from jaxformer.config.model import ModelConfig
from jaxformer.config.mup import MupConfig
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
    NoPositionsConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from jaxformer.config.reading import config_from_dict
from jaxformer.config.ready import ready_configs
from jaxformer.config.rotary_scaling import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    LongropeScalingConfig,
    RotaryScalingConfig,
    YarnScalingConfig,
)
from jaxformer.config.schema import ExperimentConfig, TrainingConfig
from jaxformer.config.tokenizer import TokenizerConfig

__all__ = [
    "MESH_AXES",
    "AdafactorConfig",
    "AdamWConfig",
    "AlibiConfig",
    "BeamSearchConfig",
    "DataConfig",
    "ExperimentConfig",
    "ExpertsConfig",
    "LoopConfig",
    "LayerConfig",
    "LearnedConfig",
    "LinearScalingConfig",
    "LionConfig",
    "LoraConfig",
    "Llama3ScalingConfig",
    "LongropeScalingConfig",
    "MeshConfig",
    "MeshRule",
    "MixtureSourceConfig",
    "ModelConfig",
    "MuonConfig",
    "MupConfig",
    "NoPositionsConfig",
    "OptimizerConfig",
    "PositionsConfig",
    "RelativeConfig",
    "RotaryConfig",
    "RotaryScalingConfig",
    "SamplesConfig",
    "SamplingConfig",
    "SamplingOptions",
    "ScheduleConfig",
    "SearchOptions",
    "SgdConfig",
    "SinusoidalConfig",
    "SyntheticConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TranslationConfig",
    "YarnScalingConfig",
    "changed_settings",
    "config_differences",
    "config_from_dict",
    "config_to_toml",
    "load_config",
    "ready_configs",
]
