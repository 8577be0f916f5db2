import math

import pytest

from jaxformer.errors import DataError
from jaxformer.training import evaluate


def eval_step(params, batch):
    """A batch is its own (loss_sum, weight_sum)."""
    return batch


PARTS = {"web": [(6.0, 3.0), (5.0, 2.0)], "code": [(14.0, 2.0)], "books": [(1.0, 4.0)]}


def test_losses_of_parts_are_scores_and_the_loss_is_that_of_all():
    result = evaluate(eval_step, None, PARTS, num_bytes=26)
    assert result.loss == 26 / 11 and result.predicted == 11
    assert result.scores == {"loss web": 11 / 5, "loss code": 7.0, "loss books": 0.25}
    assert result.bits_per_byte == pytest.approx(1 / math.log(2))
    one_part = evaluate(eval_step, None, [batch for part in PARTS.values() for batch in part])
    assert one_part.loss == result.loss and one_part.scores == {}


@pytest.mark.parametrize(
    ("batches", "got"),
    [
        ([(0.0, 0.0)] * 2, "a total weight of 0"),
        ({"web": PARTS["web"], "code": [(0.0, 0.0)]}, "a weight of 0 in 'code'"),
    ],
)
def test_validation_without_any_label_that_counts_is_refused(batches, got):
    with pytest.raises(DataError, match=f"must have labels that count, got {got}"):
        evaluate(eval_step, None, batches)


def test_perplexity_that_no_float_holds_is_infinite():
    assert evaluate(eval_step, None, [(1000.0, 1.0)]).perplexity == math.inf
