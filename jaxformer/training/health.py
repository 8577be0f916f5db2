"""Health of a training run: what the metrics of its steps say, and what is done about it."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxformer.config import LoopConfig
from jaxformer.errors import TrainingError
from jaxformer.training.data import TrainingData, batch_at
from jaxformer.training.diagnosis import diagnose
from jaxformer.training.losses import Combine, LossFunction
from jaxformer.training.parallel import Runner, gather_texts
from jaxformer.training.spikes import LossSpikes

__all__ = ["Health", "RecentSteps", "diverged"]


def diverged(
    what: str, step: int, last_saved: int, where: str, learning_rate: optax.Schedule | None
) -> TrainingError:
    """Makes the TrainingError of a run that is stopped by a number that is not finite.

    Args:
        what: such as "validation loss".
        step: number of steps taken, the bad one included.
        last_saved: step of the newest checkpoint.
        where: what is known about where it comes from.
        learning_rate: the schedule, if it is known.

    Returns:
        The error, to be raised.
    """
    rate = "" if learning_rate is None else f", {float(learning_rate(step - 1)):.4g} at this step"
    return TrainingError(
        f"{what} is not finite at step {step}; the run is saved up to step {last_saved}; {where}; "
        f"unless the data is bad, the likeliest cause is the learning rate{rate}: lower it, or the "
        "norm that gradients are clipped to, and choose another folder"
    )


class RecentSteps(NamedTuple):
    """Means over some steps.

    Args:
        loss: mean over the labels of the steps that were not skipped; None where all were.
        weight: number of labels.
        grad_norm: of the last step that was not skipped.
        skipped_steps: number of steps of the run that were skipped so far.
    """

    loss: float | None
    weight: float
    grad_norm: float | None
    skipped_steps: int


@dataclasses.dataclass(kw_only=True)
class Health:
    """Reads the metrics of training steps: stops at bad ones, reports skipped ones and spikes.

    Args:
        loss: the training loss.
        seed: seed of dropout.
        data: the training data.
        runner: where steps run.
        config: the loop's.
        folder: the run folder, if there is one.
        print_line: prints a line for the user.
        learning_rate: the schedule, to name the rate of a bad step.
        frozen: parameters that are not trained, as the runner has them, if there are any.
        combine: as in `make_train_step`.
    """

    loss: LossFunction
    seed: int
    data: TrainingData
    runner: Runner
    config: LoopConfig
    folder: pathlib.Path | None
    print_line: Callable[[str], None]
    learning_rate: optax.Schedule | None = None
    frozen: Any = None
    combine: Combine | None = None

    def __post_init__(self) -> None:
        self._spikes = LossSpikes(self.folder, self._batch, self.print_line, self.runner.host)

    def read(
        self, recent: Sequence[Mapping[str, jax.Array]], params: Any, step: int, last_saved: int
    ) -> RecentSteps:
        """Fetches the metrics of the last steps.

        Args:
            recent: metrics of one or more steps, in order, on the devices.
            params: the newest parameters, as the runner has them.
            step: number of steps taken, these included.
            last_saved: step of the newest checkpoint.

        Returns:
            Their means.

        Raises:
            TrainingError: a loss or gradient is not finite, and no more steps may be skipped.
        """
        steps = jax.device_get(recent)
        self._raise_if_bad(steps[-1], params, last_saved)
        losses, weights = (
            np.array([one[name] for one in steps], np.float64) for name in ("loss", "weight")
        )
        # What the step itself goes by.
        healthy = np.isfinite(losses) & np.isfinite([one["grad_norm"] for one in steps])
        numbers = range(step - len(steps), step)
        for number, one, is_healthy in zip(numbers, steps, healthy, strict=True):
            if is_healthy:
                self._spikes.compare(number, float(one["loss"]))
            else:
                self.print_line(
                    f"step {number + 1}: loss or gradient is not finite; skipped its batch, "
                    f"{int(one['skipped_steps'])} of at most {self.config.skip_bad_steps}"
                )
        mean = norm = None
        if healthy.any():
            mean = float((losses * weights)[healthy].sum() / weights[healthy].sum())
            norm = float(steps[np.flatnonzero(healthy)[-1]]["grad_norm"])
        weight = float(weights[np.isfinite(weights)].sum())
        return RecentSteps(mean, weight, norm, int(steps[-1]["skipped_steps"]))

    def check(self, metrics: Mapping[str, jax.Array], params: Any, last_saved: int) -> None:
        """Raises TrainingError where the run was not healthy up to a step, as `read` does."""
        self._raise_if_bad(jax.device_get(metrics), params, last_saved)

    def _raise_if_bad(self, metrics: Mapping[str, Any], params: Any, last_saved: int) -> None:
        bad, skipped = int(metrics["bad_step"]), int(metrics["skipped_steps"])
        if bad < 0:
            return
        where = self._diagnosis(bad, params)
        if self.runner.host.count > 1:  # each knows of its own rows
            where = "; ".join(dict.fromkeys(gather_texts("diagnosis", where)))
        if skipped:
            where += f"; {skipped} such steps before it were skipped"
        raise diverged("loss or gradient", bad + 1, last_saved, where, self.learning_rate)

    def _diagnosis(self, step: int, params: Any) -> str:
        """Where the bad numbers of a step come from, as far as that can be told."""
        self.print_line(
            f"step {step + 1}: loss or gradient is not finite; computing it again, row by row"
        )
        try:
            return diagnose(
                self.loss, self.runner.on_one_host(params), self._batch(step), seed=self.seed,
                step=step, runner=self.runner, accumulate_steps=self.config.accumulate_steps,
                frozen=self.runner.on_one_host(self.frozen), combine=self.combine,
            )  # fmt: skip
        except Exception as error:  # such as a loss that needs several rows; must not hide the rest
            reason = str(error).splitlines() or [type(error).__name__]
            return f"its rows could not be computed one by one ({reason[0][:200]})"

    def _batch(self, step: int) -> Any:
        """This host's batch of a step, counted from 0."""
        parts = self.runner.num_local_shards * self.config.accumulate_steps
        return batch_at(self.data.batches, step, parts)
