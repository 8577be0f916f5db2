import pytest

from jaxformer.op_names import is_of_gradient, is_of_model, part_of


@pytest.mark.parametrize(
    "name, part",
    [
        ("jit(step)/jvp(Decoder)/layers/block/attention_norm/mul", "norms"),
        ("jit(step)/transpose(jvp(Decoder))/layers/block/attention/dot_general", "attention"),
        ("jit(step)/optimizer/vmap(jit(norm))/mul", "optimizer"),
        ("jit(step)/jvp()/loss/reduce_sum", "logits and loss"),
        ("jit(step)/sqrt", "optimizer"),
        ("jit(step)/jvp(Decoder)/final_norm/mul", "norms"),
        ("jit(step)/jvp(Decoder)/layers/attention/jvp(jit(_where))/select_n", "attention"),
        ("jit(step)/jvp(Decoder)/positions.rotation_for/mul", "attention"),
        ("jit(step)/jvp(Decoder)/layers/feed_forward/dot_general", "feed-forward"),
        ("jit(step)/jvp(Decoder.logits)/embedding.logits/dot_general", "logits and loss"),
        ("jit(step)/while/body/transpose(jvp(jit(_scan_chunks)))/exp", "logits and loss"),
        ("jit(step)/jvp()/jit(take_along_axis)/gather", "logits and loss"),
        ("jit(step)/jvp(SequenceClassifier)/pooler/reduce_sum", "logits and loss"),
        ("jit(step)/jvp(Decoder)/embedding/gather", "embedding"),
        ("jit(step)/jvp(Decoder)/layers/dropout/mul", "dropout"),
        ("jit(step)/jit(tree_bias_correction)/div", "optimizer"),
        ("jit(step)/jvp(Decoder)/layers/block/add", None),
        ("copy.3", None),
    ],
)
def test_part_of_a_step(name, part):
    assert part_of(name) == part


def test_names_tell_passes_apart():
    forward, backward = "jit(f)/jvp(Decoder)/dot", "jit(f)/transpose(jvp(Decoder))/dot"
    again = "jit(f)/transpose(jvp(Decoder))/rematted_computation/dot"
    assert [*map(is_of_model, (forward, backward, again, "jit(f)/dot"))] == [1, 1, 0, 0]
    assert [*map(is_of_gradient, (forward, backward, again))] == [0, 1, 1]
