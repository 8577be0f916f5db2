"""Health of a training run: checks for non-finite steps and loss spikes."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax

from jaxformer.config import LoopConfig
from jaxformer.errors import TrainingError
from jaxformer.training.data import TrainingData, batch_at
from jaxformer.training.diagnosis import diagnose
from jaxformer.training.losses import Combine, LossFunction
from jaxformer.training.parallel import Runner, gather_texts
from jaxformer.training.spikes import LossSpikes

__all__ = ["Health", "RecentSteps"]


class RecentSteps(NamedTuple):
    """Summary of recent steps.

    Args:
        loss: mean over the labels of the steps that were not skipped; None if all were.
        weight: number of labels.
        grad_norm: gradient norm of the last step that was not skipped.
        skipped_steps: number of steps skipped in the whole run so far.
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
        config: settings of the loop.
        folder: the run folder, if any.
        print_line: prints a line for the user.
        learning_rate: the schedule, to name the rate of a bad step.
        frozen: frozen parameters, as the runner placed them, if any.
        combine: as in `make_train_step`.
        explains: whether to compute a bad step again to find where its numbers come from.
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
    explains: bool = True

    def __post_init__(self) -> None:
        self._spikes = LossSpikes(self.folder, self._batch, self.print_line, self.runner.host)

    def read(
        self, recent: Sequence[Mapping[str, Any]], params: Callable[[], Any], step: int,
        last_saved: int,
    ) -> RecentSteps:  # fmt: skip
        """Summarizes the metrics of recent steps.

        Args:
            recent: metrics of one or more steps, in order, on the host.
            params: returns the newest parameters, as the runner placed them.
            step: number of steps taken, including these.
            last_saved: step of the newest checkpoint.

        Raises:
            TrainingError: a loss or gradient is not finite, and no more steps may be skipped.
        """
        steps = recent
        self.check(steps[-1], params, last_saved)
        losses, weights = (
            np.array([one[name] for one in steps], np.float64) for name in ("loss", "weight")
        )
        # The same test as in the train step.
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

    def diverged(self, what: str, step: int, last_saved: int, where: str) -> TrainingError:
        """Error of a run that stops because `what` is not finite.

        Args:
            what: such as "validation loss".
            step: number of steps taken, including the bad one.
            last_saved: step of the newest checkpoint.
            where: what is known about its origin.
        """
        if not self.explains:
            return TrainingError(f"{what} is not finite at step {step}")
        schedule = self.learning_rate
        rate = "" if schedule is None else f", {float(schedule(step - 1)):.4g} at this step"
        return TrainingError(
            f"{what} is not finite at step {step}; the run is saved up to step {last_saved}; "
            f"{where}; unless the data is bad, the likeliest cause is the learning rate{rate}: "
            "lower it, or the norm to which gradients are clipped, and choose another folder"
        )

    def check(self, metrics: Mapping[str, Any], params: Callable[[], Any], last_saved: int) -> None:
        """Raises TrainingError as `read` does, from the metrics of the last step."""
        bad, skipped = int(metrics["bad_step"]), int(metrics["skipped_steps"])
        if bad < 0:
            return
        where = self._diagnosis(bad, params()) if self.explains else ""
        if self.runner.host.count > 1:  # each knows only its own rows
            where = "; ".join(dict.fromkeys(gather_texts("diagnosis", where)))
        if skipped:
            where += f"; {skipped} such steps before it were skipped"
        raise self.diverged("loss or gradient", bad + 1, last_saved, where)

    def _diagnosis(self, step: int, params: Any) -> str:
        """Origin of the non-finite numbers of a step, as far as it can be found."""
        self.print_line(
            f"step {step + 1}: loss or gradient is not finite; computing it again, row by row"
        )
        try:
            return diagnose(
                self.loss, self.runner.on_one_host(params), self._batch(step), seed=self.seed,
                step=step, runner=self.runner, accumulate_steps=self.config.accumulate_steps,
                frozen=self.runner.on_one_host(self.frozen), combine=self.combine,
            )  # fmt: skip
        except Exception as error:  # say, the loss needs several rows; the error must still be told
            reason = str(error).splitlines() or [type(error).__name__]
            return f"its rows could not be computed one by one ({reason[0][:200]})"

    def _batch(self, step: int) -> Any:
        """This host's batch of a step, counted from 0."""
        parts = self.runner.num_local_shards * self.config.accumulate_steps
        return batch_at(self.data.batches, step, parts)
