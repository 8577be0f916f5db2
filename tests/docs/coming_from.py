"""What the rows of docs/coming-from.md give, in NumPy: a function of a section's names each."""

import itertools

import jax
import numpy as np
import optax
from einops import rearrange

from jaxformer.config import RotaryConfig
from tests import numpy_transformer
from tests.functional import oracle

EXPECTED = {}


def row(section, name):
    def register(function):
        EXPECTED[section, name] = function
        return function

    return register


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def attend(names, *, suffix="", **options):
    key, value = names[f"key{suffix}"], names[f"value{suffix}"]
    return oracle.attention(names["query"], key, value, **options)


def multi_head(params, queries, keys, **options):
    """Output and weights of four heads."""

    def heads(name, inputs):
        bias = getattr(params, f"{name}_bias")
        flat = np.asarray(inputs, np.float64) @ getattr(params, f"{name}_kernel")
        return rearrange(flat + (0 if bias is None else bias), "b t (n h) -> b t n h", n=4)

    query, key, value = heads("query", queries), heads("key", keys), heads("value", keys)
    attended = oracle.attention(query, key, value, **options)
    merged = rearrange(attended, "b t n h -> b t (n h)") @ params.output_kernel
    output = merged + (0 if params.output_bias is None else params.output_bias)
    return output, oracle.attention_weights(query, key, **options)


def normalized(x, eps, *, centre):
    x = np.asarray(x, np.float64)
    x = x - x.mean(-1, keepdims=True) if centre else x
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)


# PyTorch

for name, options in {
    "sdpa": lambda names: {},
    "mask": lambda names: {"mask": names["mask"]},
    "bias": lambda names: {"bias": names["bias"]},
    "causal": lambda names: {"is_causal": True},
    "causal-last": lambda names: {"is_causal": True, "query_offset": 2},
    "grouped": lambda names: {"suffix": "2"},
}.items():
    EXPECTED["PyTorch", name] = lambda names, options=options: attend(names, **options(names))


@row("PyTorch", "dropout")
def kept_weights(names):
    weights = oracle.attention_weights(names["query"], names["key"])
    return 2 * rearrange(weights, "b n t s -> b t n s")


@row("PyTorch", "mha")
def self_attention(names, **options):
    return multi_head(names["params"], names["x"], names["x"], **options)[0]


@row("PyTorch", "padding")
def padded_self_attention(names):
    return self_attention(names, key_value_seq_lengths=names["lengths"])


@row("PyTorch", "attn-mask")
def causal_self_attention(names):
    return self_attention(names, is_causal=True)


@row("PyTorch", "cross")
def cross_attention_weights(names):
    return multi_head(names["params"], names["y"], names["x"])[1]


@row("PyTorch", "layer-norm")
def layer_norm(names, eps=1e-5):
    return normalized(names["x"], eps, centre=True) * names["scale"] + names["shift"]


@row("PyTorch", "rms-norm")
def rms_norm(names):
    return normalized(names["x"], 2.0**-23, centre=False) * names["scale"]


@row("PyTorch", "cross-entropy")
def smoothed_cross_entropy(names):
    log_probs, labels = log_softmax(names["logits"]), names["labels"]
    right = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    losses = -(0.9 * right + 0.1 * log_probs.mean(-1))
    return losses[labels >= 0].mean()


@row("PyTorch", "encoder-layer")
def encoder_layer(names):
    config, p = names["config"], names["layer"]
    x = names["x"] + padded_self_attention(names)
    x = numpy_transformer.norm(config, p["attention_norm"], x)
    p, norm = p["feed_forward"], p["feed_forward_norm"]
    hidden = np.maximum(x @ p["up_kernel"] + p["up_bias"], 0)
    x = x + hidden @ p["down_kernel"] + p["down_bias"]
    return numpy_transformer.norm(config, norm, x)[names["real"]]


@row("PyTorch", "transformer")
def encoder_decoder(names):
    config, params = names["seq2seq"].config, numpy_transformer.float64(names["weights"])
    source, target, lengths = names["source"], names["target"], names["lengths"]
    return numpy_transformer.encoder_decoder(config, params, source, target, lengths)[0]


# Hugging Face


def decoder(names, tokens=None, **options):
    """Logits, hidden states and weights."""
    tokens = names["tokens"] if tokens is None else tokens
    params = numpy_transformer.float64(names["params"])
    return numpy_transformer.decoder(names["config"], params, tokens, **options)


@row("Hugging Face", "padding")
def padded_logits(names):
    return decoder(names, lengths=names["lengths"])[0][names["real"]]


@row("Hugging Face", "loss")
def next_token_loss(names):
    log_probs = log_softmax(decoder(names)[0][:, :-1])
    return -np.take_along_axis(log_probs, names["tokens"][:, 1:, None], axis=-1).mean()


EXPECTED["Hugging Face", "logits"] = lambda names: decoder(names)[0]
EXPECTED["Hugging Face", "hidden"] = lambda names: decoder(names)[1]
EXPECTED["Hugging Face", "attentions"] = lambda names: decoder(names)[2]
EXPECTED["Hugging Face", "cache"] = lambda names: decoder(names)[0][:, 3:]


@row("Hugging Face", "greedy")
def likeliest_tokens(names, penalty=1.0):
    tokens = names["tokens"]
    for _ in range(4):
        logits = decoder(names, tokens)[0][:, -1]
        for row_logits, seen in zip(logits, tokens, strict=True):
            for token in set(seen.tolist()):
                logit = row_logits[token]
                row_logits[token] = logit / penalty if logit > 0 else logit * penalty
        tokens = np.concatenate([tokens, logits.argmax(-1)[:, None]], axis=1)
    return tokens[:, 5:].tolist()


EXPECTED["Hugging Face", "sampling"] = lambda names: likeliest_tokens(names, penalty=1.3)


@row("Hugging Face", "top-p")
def nucleus(names):
    logits = np.asarray(names["logits"], np.float64)
    order = np.argsort(-logits, axis=-1)
    probabilities = np.exp(np.take_along_axis(log_softmax(logits), order, axis=-1))
    keep = np.cumsum(probabilities, axis=-1) - probabilities < 0.8
    kept = np.zeros_like(keep)
    np.put_along_axis(kept, order, keep, axis=-1)
    return np.where(kept, logits, -np.inf)


@row("Hugging Face", "beams")
def best_of_all_translations(names):
    """The best of all translations of up to three tokens: 10 is the start, 0 the end."""
    config = names["translator"].config
    params = numpy_transformer.float64(names["translator_params"])
    paths = np.array([(10, *path) for path in itertools.product(range(10), repeat=3)])
    best = []
    for source in names["sources"]:
        repeated = np.repeat(source[None], len(paths), axis=0)
        logits, _ = numpy_transformer.encoder_decoder(config, params, repeated, paths[:, :-1])
        log_probs = log_softmax(logits[..., :10])
        steps = np.take_along_axis(log_probs, paths[:, 1:, None], axis=-1)[..., 0]
        scores = {}
        for path, step in zip(paths[:, 1:].tolist(), steps, strict=True):
            length = path.index(0) + 1 if 0 in path else 3
            scores[tuple(path[:length])] = step[:length].sum() / length**0.6
        best.append([token for token in max(scores, key=scores.get) if token])
    return best


@row("Hugging Face", "tokenizer")
def utf8(names):
    return [list(text.encode()) for text in names["texts"]]


@row("Hugging Face", "lengths")
def real_tokens(names):
    return (np.arange(5) < np.array([[len(text)] for text in utf8(names)])).astype(int).tolist()


@row("Hugging Face", "trainer")
def loss_after_three_steps(names):
    model, tokens = names["model"], names["tokens"]
    params = jax.tree.map(np.asarray, names["params"])
    decayed = jax.tree_util.tree_map_with_path(lambda path, _: "scale" not in path[-1].key, params)
    rate = optax.linear_schedule(0.01, 0.0, 3)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.1, mask=decayed)
    )

    def loss(params):
        logits = model.apply({"params": params}, tokens[:, :-1]).logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(3):
        params, state = step(params, state)
    return next_token_loss(names | {"params": params})


# Flax


@row("Flax", "linen")
def masked_attention(names):
    return attend(names, bias=names["bias"], mask=names["mask"])


EXPECTED["Flax", "jax"] = lambda names: attend(names, is_causal=True)
EXPECTED["Flax", "causal-mask"] = lambda names: np.tri(5)[None, None].repeat(2, axis=0)


@row("Flax", "padding-mask")
def padding_mask(names):
    return np.broadcast_to(names["real"][:, None, None], (2, 1, 5, 5))


@row("Flax", "segments")
def segment_mask(names):
    return names["ids"][:, None, :, None] == names["ids"][:, None, None]


@row("Flax", "combine")
def combined_mask(names):
    return padding_mask(names) * np.tri(5)


EXPECTED["Flax", "attention"] = causal_self_attention
EXPECTED["Flax", "attention-fn"] = causal_self_attention
EXPECTED["Flax", "nnx"] = self_attention
EXPECTED["Flax", "nnx-attention-fn"] = causal_self_attention
EXPECTED["Flax", "layer-norm"] = lambda names: layer_norm(names, eps=1e-6)
EXPECTED["Flax", "logits"] = lambda names: names["x"].astype(float) @ names["table"].T


@row("Flax", "decode")
def first_token_attends_to_itself(names):
    return names["x"][:, :1] @ names["params"].value_kernel @ names["params"].output_kernel


@row("Flax", "loss")
def summed_loss(names):
    log_probs = log_softmax(names["logits"])
    return -np.take_along_axis(log_probs, names["labels"][..., None], axis=-1).sum()


# x-transformers


def named_decoder(names, **options):
    config = names["configured"](**options)
    params = numpy_transformer.float64(names["named"](names["Decoder"](config)))
    return numpy_transformer.decoder(config, params, names["tokens"])[0]


for name, options in {
    "no-positions": {},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "kv-heads": {"num_kv_heads": 2},
    "glu": {"activation": "swiglu"},
    "rms-norm": {"norm": "rms_norm", "norm_eps": 1e-12},
    "sandwich": {"norm_position": "sandwich"},
    "post-norm": {"norm_position": "post"},
    "qk-norm": {"qk_norm": True},
    "window": {"local_window_size": 2},
}.items():
    EXPECTED["x-transformers", name] = lambda names, options=options: named_decoder(
        names, **options
    )


@row("x-transformers", "rotary")
def pairs_of_neighbours(names):
    """Half-split rotation of queries and keys whose even features come first."""
    config = names["configured"](positions=RotaryConfig())
    params = numpy_transformer.float64(names["named"](names["Decoder"](config)))
    attention = params["stack"]["layers"]["attention"]
    for name in ("query_kernel", "key_kernel"):
        split = "l d (n i two) -> l d (n two i)"
        attention[name] = rearrange(attention[name], split, n=4, two=2)
    return numpy_transformer.decoder(config, params, names["tokens"])[0]
