"""Configs of training: its length, batches and devices, the mesh, LoRA, and several hosts."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from jaxformer.config.checks import BelowOne, Config, PositiveFloat, PositiveInt, at_least, at_most

MESH_AXES = ("data", "fsdp", "expert", "sequence", "tensor")
"""Axes of a mesh, in the order of communication between their devices, least first."""

Tracker = Literal["wandb", "mlflow", "trackio", "csv"]

_MAX_CPU_DEVICES = 1024  # each has threads of its own


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopConfig(Config):
    """Number of training steps, and intervals of metrics, validation and checkpoints.

    Args:
        steps: total number of optimizer steps, including those before a resume.
        accumulate_steps: number of micro-batches that each optimizer step is split into, to save
            memory. With batch_size, this does not change the result. With batch_tokens, it also
            affects how many rows a batch has.
        log_every: number of steps between records of metrics. The last step is always recorded, and
            so is the first if there are fewer than log_every steps.
        eval_every: number of steps between validations; the last step always has one.
        checkpoint_every: number of steps between checkpoints; the last step is always saved.
        keep_checkpoints: number of newest checkpoints to keep, in addition to the best.
        average_decay: decay per step of an exponential moving average of the parameters,
            usually 0.999. Validation, samples and the opened run then use the average. For the
            first 1 / (1 - average_decay) steps it is the plain mean. Default: no average.
        log_to: tools that get the metrics, besides metrics.jsonl: "wandb" (Weights & Biases),
            "mlflow" and "trackio", which need their packages, or "csv" for metrics.csv in the run
            folder. A resumed run goes on there.
    """

    steps: PositiveInt
    accumulate_steps: PositiveInt = 1
    log_every: PositiveInt = 10
    eval_every: PositiveInt = 200
    checkpoint_every: PositiveInt = 200
    keep_checkpoints: PositiveInt = 2
    average_decay: BelowOne | None = None
    log_to: tuple[Tracker, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(LoopConfig):
    """Length of training, intervals, batches, label smoothing and devices.

    Args:
        batch_size: number of sequences per optimizer step on all devices and hosts, for text and
            conversations; divisible by accumulate_steps * (devices that split the rows).
        batch_tokens: largest number of tokens per optimizer step on all devices and hosts, padding
            included, for pairs and labeled texts. A batch of length L, which for pairs is that of
            the longer side, has at most batch_tokens // L rows.
        label_smoothing: fraction of the target probability that is spread evenly over the
            vocabulary, or the classes; at least 0 and less than 1. Not used in validation.
        runner: how training uses the devices: "pmap" splits only the rows of a batch, so every
            device holds all parameters; "mesh" splits parameters, rows and tokens as `[mesh]`
            says; "single" uses one device. "auto" is "mesh" if a key of `[mesh]` differs from its
            default or there are several hosts, and "pmap" otherwise.
        devices: number of this host's devices to use; all if not set.
        cpu_devices: number of virtual devices that the commands split this machine's CPU into, to
            try parallel training without accelerators, or because two are faster for a small model;
            at most 1,024; not split if not set. In Python, JAX has the devices that it started
            with.
    """

    batch_size: PositiveInt | None = dataclasses.field(
        default=None, metadata={"unless": "batch_tokens"}
    )
    batch_tokens: PositiveInt | None = None
    label_smoothing: BelowOne = 0.0
    runner: Literal["auto", "pmap", "mesh", "single"] = "auto"
    devices: PositiveInt | None = None
    cpu_devices: Annotated[PositiveInt, at_most(_MAX_CPU_DEVICES)] | None = None

    ONLY_FOR: ClassVar = {("devices", "runner"): ("auto", "pmap", "mesh")}

    def _mistakes(self) -> Iterator[str]:
        if (self.batch_size is None) == (self.batch_tokens is None):
            yield (
                "training needs one of batch_size (sequences of one length) and batch_tokens "
                f"(pairs and labeled texts), {self.got('batch_size', 'batch_tokens')}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(Config):
    """Mesh of devices: number of devices along each axis, and what each axis splits.

    Args:
        data: number of devices along the axis that splits only the rows of a batch; if not set, all
            devices that the other axes leave.
        fsdp: number of devices along the axis that splits the rows of a batch, the parameters and
            the optimizer state (fully sharded data parallelism).
        expert: number of devices along the axis that splits the rows of a batch and the experts of
            a mixture; these devices exchange the tokens that chose each other's experts.
        tensor: number of devices along the axis that splits attention heads, the hidden width of
            feed-forward layers and the vocabulary (tensor parallelism).
        sequence: number of devices along the axis that splits the tokens of a sequence.

    References:
        Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        2020 (fsdp). Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models
        Using Model Parallelism", 2019 (tensor). Lepikhin et al., "GShard: Scaling Giant Models with
        Conditional Computation and Automatic Sharding", 2020 (expert).
    """

    data: PositiveInt | None = None
    fsdp: PositiveInt = 1
    expert: PositiveInt = 1
    tensor: PositiveInt = 1
    sequence: PositiveInt = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoraConfig(Config):
    """Low-rank adaptation (LoRA): trains pairs of narrow matrices, and freezes the weights.

    Args:
        rank: R, width of the matrices: a kernel `[D, F]` gets a pair `[D, R]` and `[R, F]`, whose
            product is added to it.
        alpha: scale of the update: the product of each pair of matrices is multiplied by
            alpha / rank.
        targets: patterns for the paths of the kernels that get matrices, such
            as `*query_kernel`: `*` matches anything, `?` one character. A path is the names of the
            enclosing modules and the kernel's own name, separated by slashes, as
            in `stack/layers/attention/query_kernel`.

    References:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. The default targets
        are those that it trains in GPT-3.
    """

    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    targets: tuple[str, ...] = ("*query_kernel", "*value_kernel")

    def _mistakes(self) -> Iterator[str]:
        if not self.targets or "" in self.targets:
            got = self.got("targets")
            yield f"targets must be patterns of paths of kernels, such as '*query_kernel', {got}"

    @property
    def scale(self) -> float:
        """Scale of the products, alpha / R."""
        return self.alpha / self.rank


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch(Config):
    """On several hosts: how the processes of a job find each other, and how long they wait.

    Args:
        coordinator: with SLURM, Kubernetes or a TPU pod: auto. Elsewhere: HOST:PORT of the first
            process (see docs/devices.md).
        num_processes: number of processes.
        process_id: number of this process, from 0.
        start_timeout: seconds to wait for the other processes at the start.
        host_timeout: seconds after which a process that does not answer counts as lost.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    start_timeout: Annotated[int, at_least(5)] = 300
    host_timeout: Annotated[int, at_least(5)] = 60

    def _mistakes(self) -> Iterator[str]:
        alone = (self.num_processes, self.process_id) == (None, None)
        if alone and self.coordinator in (None, "auto"):
            return
        has_port = re.fullmatch(r".+:\d+", self.coordinator or "") is not None
        if not has_port or self.process_id not in range(self.num_processes or 0):
            yield (
                "a job needs --coordinator HOST:PORT of the first process, --num-processes, and a "
                "--process-id below that, different in each process; or --coordinator auto alone; "
                + self.got("coordinator", "num_processes", "process_id")
            )
