"""The mistakes of the four documents that change a result, each with its correction."""

import mistaken
import numpy as np
from cures import (
    ADDED_MASK,
    KEY,
    KEY_BATCH,
    NEIGHBOURS,
    QUERY,
    QUERY_BATCH,
    SECOND_SEES_NOTHING,
    SENTENCES,
    attend,
    attend_by_hand,
    attend_by_switch,
    attend_causally,
    attend_where_true,
    attend_with_bias,
    drop_in_evaluation,
    evaluate_twice,
    feed_raw_input,
    normalize,
    normalize_beside_neighbours,
    normalize_first,
    run_block,
)
from museum import Mistake
from positions import positions_by_array
from scores import weights_of_scores
from six_words import INPUTS, W_KEY, W_QUERY, W_VALUE, WORDS

_QUERIES, _KEYS = [f"query {i}" for i in range(3)], [f"key {i}" for i in range(3)]
_ANY_WIDTH = r"\mathrm{sines} = \lceil d / 2 \rceil, \quad \mathrm{cosines} = \lfloor d / 2 \rfloor"

MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        title="an odd width leaves the last feature of every position at 0",
        document=1,
        lines=[(131, 154)],
        mistaken=mistaken.positions_in_pairs,
        mistaken_formula=r"\mathrm{sines} = \mathrm{cosines} = \lfloor d / 2 \rfloor",
        cure=positions_by_array,
        cure_formula=_ANY_WIDTH,
        inputs=(5, 5),
        happens="The loop fills pairs of columns, so that the last of an odd number stays as it "
        "was made. The document prints it, and a version at once below it whose last column is "
        "right.",
        guard="`sinusoidal_positions` has one sine more than cosines at an odd width.",
        rows=[f"position {p}" for p in range(5)],
        columns=[f"feature {i}" for i in range(5)],
        caption="Positional encoding, width 5",
        digits=5,
    ),
    Mistake(
        title="softmax overflows at scores of 89 and vanishes at -200",
        document=1,
        lines=[(725, 728), (916, 917), (1000, 1001)],
        mistaken=mistaken.softmax_without_maximum,
        mistaken_formula=r"w_j = \dfrac{e^{x_j}}{\sum_k e^{x_k}}",
        cure=weights_of_scores,
        cure_formula=r"w_j = \dfrac{e^{x_j - m}}{\sum_k e^{x_k - m}}, \quad m = \max_k x_k",
        inputs=(np.array([[89, 0], [-200, -200], [1, 2]], np.float32),),
        happens="In float32 e^89 is infinite, and infinity over infinity is NaN; where all scores "
        "are -200 it is 0 over 0. Ordinary scores hide it. The first of the three also sums over "
        "axis 1, whichever axis that is.",
        guard="Attention takes each row's maximum off before, and works in float32 at least: "
        "scores as large as 1e30 have finite weights.",
        rows=["[89, 0]", "[-200, -200]", "[1, 2]"],
        columns=_KEYS[:2],
    ),
    Mistake(
        title="a score of 0 is taken for a masked one",
        document=1,
        lines=[(1059, 1068), (1080, 1080), (1099, 1099)],
        mistaken=mistaken.mask_by_value,
        mistaken_formula=r"\mathrm{hidden}\ \Leftrightarrow\ \mathrm{tril}(S)_{ts} = 0",
        cure=attend_causally,
        cure_formula=r"\mathrm{hidden}\ \Leftrightarrow\ s > t",
        inputs=(QUERY, KEY),
        happens="The lower triangle is hidden where it is 0. Query 2 is at right angles to key 1, "
        "which it may see: hidden. Query 1 is all zeros, as padding may be: all its keys are "
        "hidden, and its weights are NaN.",
        guard="The causal mask compares indices; no score is read to make it.",
        rows=_QUERIES,
        columns=_KEYS,
    ),
    Mistake(
        title="epsilon is subtracted from the variance",
        document=1,
        lines=[(1168, 1170)],
        mistaken=mistaken.layer_norm_minus_epsilon,
        mistaken_formula=r"y = \dfrac{x - \mu}{\sqrt{\sigma^2 - \epsilon}}",
        cure=normalize,
        cure_formula=r"y = \dfrac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}",
        inputs=(np.array([[0.7] * 4, [0.0033, -0.0033] * 2, [1, 2, 3, 4]], np.float32),),
        happens="It is there to keep the root from 0. Subtracted, it takes the root of a negative "
        "number for a constant row, and blows up a row whose variance is hardly above it.",
        guard="`layer_norm` adds it; a negative one is a ConfigError, there and in a config's "
        "norm_eps.",
        rows=["constant", "nearly constant", "1, 2, 3, 4"],
        columns=[f"feature {i}" for i in range(4)],
        caption="Layer norm",
    ),
    Mistake(
        title="the feed-forward layer is fed the block's input",
        document=1,
        lines=[(1216, 1218)],
        mistaken=feed_raw_input,
        mistaken_formula=r"Y = \mathrm{feed}(X)",
        cure=run_block,
        cure_formula=r"Y = \mathrm{norm}(Z + \mathrm{feed}(Z)), \quad Z = \mathrm{norm}(X + A(X))",
        inputs=(SENTENCES,),
        happens="X is the embedding still, not what attention and the first add & norm made of it: "
        "all that came before is thrown away, and no word knows of another. Two sentences differ "
        "in their first word; the last word's vector is the same in both. Nor is the result added "
        "to what came in and normalized.",
        guard="`Block` wires the two sublayers with their sums and norms, and models are stacks of "
        "it.",
        rows=["sentence 0", "sentence 1"],
        columns=[f"feature {i}" for i in range(4)],
        caption="The last word's vector",
    ),
    Mistake(
        title="the width of an earlier loop scales the scores",
        document=2,
        lines=[(202, 205), (237, 257)],
        mistaken=mistaken.attend_with_leaked_width,
        mistaken_formula=r"W = \mathrm{softmax}\left(\dfrac{Q K^{\mathsf{T}}}{\sqrt{256}}\right)",
        cure=attend_by_hand,
        cure_formula=r"W = \mathrm{softmax}\left(\dfrac{Q K^{\mathsf{T}}}{\sqrt{2}}\right)",
        inputs=tuple(map(np.asarray, (INPUTS, W_QUERY, W_KEY, W_VALUE))),
        happens="The variable d_k was 2, and after a loop over widths it is 256: the scores are "
        "divided by 16 in place of 1.41, and all weights come out near a sixth. Both tables that "
        "the document prints from there on are the mistaken ones here, within the rounding of its "
        "matrices.",
        guard="The scale is 1 over the root of the query's own last axis, unless a call says "
        "another.",
        rows=WORDS,
        columns=[*WORDS, "context 0", "context 1"],
        caption="Weights and contexts",
    ),
    Mistake(
        title="the mask is on when it is switched off",
        document=3,
        lines=[(95, 99), (326, 326)],
        mistaken=mistaken.attend_by_not_none,
        mistaken_formula=r"\mathrm{masked}\ \Leftrightarrow\ \mathrm{to\_mask} \neq \mathrm{None}",
        cure=attend_by_switch,
        cure_formula=r"\mathrm{masked}\ \Leftrightarrow\ \mathrm{is\_causal}",
        inputs=(QUERY, KEY, False),
        happens="Whatever is not None counts as on, and the document's encoder says to_mask = "
        "False.",
        guard="`is_causal` is True or False; None, 0 or 1 are a ConfigError.",
        rows=_QUERIES,
        columns=_KEYS,
    ),
    Mistake(
        title="an odd width is an error",
        document=3,
        lines=[(222, 223)],
        mistaken=mistaken.positions_of_even_width,
        mistaken_formula=r"\mathrm{sines} = \mathrm{cosines} = \lceil d / 2 \rceil",
        cure=positions_by_array,
        cure_formula=_ANY_WIDTH,
        inputs=(10, 5),
        happens="There is a cosine for every sine, and at an odd width no column for the last.",
        guard="`sinusoidal_positions` takes any width from 1 on.",
        rows=[f"position {p}" for p in range(10)],
        columns=[f"feature {i}" for i in range(5)],
        caption="Positional encoding, width 5",
    ),
    Mistake(
        title="layer norm mixes the sentences of a batch",
        document=3,
        lines=[(271, 291)],
        mistaken=normalize_beside_neighbours,
        mistaken_formula=r"\mu_t = \dfrac{1}{B D} \sum_{b, i} x_{b t i}",
        cure=normalize_first,
        cure_formula=r"\mu_{b t} = \dfrac{1}{D} \sum_i x_{b t i}",
        inputs=(NEIGHBOURS,),
        happens="Mean and variance are over batch and features. At the document's batch of 1 "
        "nothing is seen. Here a sentence is normalized beside one of zeros, and beside one of "
        "ones: its first feature goes from one side of 0 to the other, for what stands next to it. "
        "Its scale and shift have the shape of the batch.",
        guard="`layer_norm` takes the last axis, or a run of last axes: axis=(0, 2) is a "
        "ShapeError.",
        rows=["beside zeros", "beside ones"],
        columns=[f"feature {i}" for i in range(3)],
        caption="[0.9, 1, 1], normalized",
    ),
    Mistake(
        title="a mask that is edited in place depends on the order",
        document=4,
        lines=[(94, 98)],
        mistaken=mistaken.attend_with_swapped_edits,
        mistaken_formula=r"1 \to 0, \quad \mathrm{then}\ 0 \to -\infty",
        cure=attend_causally,
        cure_formula=r"M_{ts} = (s \leq t)",
        inputs=(QUERY, KEY),
        happens="As printed it fails at once: NumPy 2 has no np.infty. With np.inf, its two lines "
        "are right in their order, 0 to -inf before 1 to 0; here they are swapped, all is hidden, "
        "and every weight is NaN. Run again, a cell of them hides all as well.",
        guard="`functional.Causal` makes the mask in one expression, and a JAX array cannot be "
        "edited: assigning to its elements is a TypeError.",
        rows=_QUERIES,
        columns=_KEYS,
    ),
    Mistake(
        title=".T reverses the axes of the batch too",
        document=4,
        lines=[(102, 103), (109, 113)],
        mistaken=mistaken.attend_by_transposing,
        mistaken_formula=r"(K^{\mathsf{T}})_{h s b} = K_{b s h}",
        cure=attend,
        cure_formula=r"S_{b t s} = \dfrac{1}{\sqrt{d_k}} \sum_h Q_{b t h} K_{b s h}",
        inputs=(QUERY_BATCH, KEY_BATCH),
        happens="With two axes .T is what is meant. With a batch it brings the last axis to the "
        "front, which is an error for most sizes, and for equal ones silently another product, "
        "divided by the sums of other rows: weights that do not sum to 1. The softmax overflows "
        "besides, like that of the first document.",
        guard="Attention names its axes in every product, with any leading ones before them: a "
        "batch gives what its sentences give alone.",
        rows=[f"sentence {b}, query {t}" for b in range(2) for t in range(2)],
        columns=_KEYS[:2],
    ),
    Mistake(
        title="one word, mask, for two opposite things",
        document=4,
        lines=[(94, 119), (161, 161)],
        mistaken=mistaken.attend_where_not_zero,
        mistaken_formula=r"\mathrm{hidden}\ \Leftrightarrow\ M_{ts} = 0, \ M \in \{0, -\infty\}",
        cure=attend_with_bias,
        cure_formula=r"W = \mathrm{softmax}(S + M), \quad M \in \{0, -\infty\}",
        inputs=(QUERY, KEY, ADDED_MASK),
        happens="The NumPy function adds its mask: 0 where one may look, -inf where not. The layer "
        "below hides where its mask is 0. The first given to the second attends to exactly what is "
        "forbidden, and the last word, to which nothing is, gets NaN.",
        guard="A mask is bool, True = attend, and what is added is another argument, the bias, of "
        "floats: a float mask or a bool bias is a ShapeError.",
        rows=_QUERIES,
        columns=_KEYS,
    ),
    Mistake(
        title="a word that may see nothing becomes NaN",
        document=4,
        lines=[(161, 163)],
        mistaken=mistaken.attend_where_not_zero,
        mistaken_formula=r"\max_s S_{ts} = -\infty \ \Rightarrow\ W_{ts} = \dfrac{0}{0}",
        cure=attend_where_true,
        cure_formula=r"\mathrm{nothing\ to\ attend\ to} \ \Rightarrow\ W_{ts} = 0",
        inputs=(QUERY, KEY, SECOND_SEES_NOTHING),
        happens="All its scores are -inf, and so is their maximum: 0 over 0. Padding does that, "
        "and one NaN makes the whole loss NaN.",
        guard="A query that may see nothing has weights and output of exactly 0, and gradients of "
        "0.",
        rows=_QUERIES,
        columns=_KEYS,
    ),
    Mistake(
        title="dropout is on in evaluation too",
        document=4,
        lines=[(164, 172)],
        mistaken=drop_in_evaluation,
        mistaken_formula=r"\mathrm{evaluation:} \quad W'_{ts} = \dfrac{W_{ts} B_{ts}}{1 - p}",
        cure=evaluate_twice,
        cure_formula=r"\mathrm{evaluation:} \quad W' = W",
        inputs=(SENTENCES,),
        happens="The function form of dropout is on unless it is told training=False; here it is "
        "told nothing, the rate is fixed, and the weights returned are those after it, whose rows "
        "do not sum to 1. Two calls on one sentence differ.",
        guard="Dropout needs deterministic=False and a key, without which it is an error; the "
        "weights returned are those before it.",
        rows=["first call", "second call"],
        columns=["word 0", "word 1", "word 2", "sum"],
        caption="Weights of the last word",
    ),
)
