"""MWR: an image's place between two reference images, in a window that moves.

Shin et al., "Moving Window Regression: A Novel Approach to Ordinal Regression",
CVPR 2022. For a lower and an upper reference image, a network estimates the relative
rank rho of a third: -1 at the rank of the lower one, 1 at that of the upper one, and
clipped outside. Prediction starts from nearest neighbours, estimates rho in the window
around that guess, and moves the window until the rank stays the same.

Differences from the released code:
- Ranks enter as they are, not as logarithms, and the window around rank p is
  [p - 1, p + 1] cut to the range. Logarithms are meant for ages: for ranks from 0 on,
  their windows hold too few ranks, and none at the top.
- A window's end that has no training image moves outwards to the next rank that has.
- Reference pairs are chosen from a random sample of candidates, compared on a random
  sample of images, and the estimates of several pairs are averaged.
- Every window is taken from the newest guess, as in the authors' code for testing.
- The epoch is chosen on validation data.
- Dropout is 0.5, as in their code for testing; their code for training has 0.8.
- There is no local variant, which has encoders of its own for groups of ranks.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from cloc_jax.losses import masks
from cloc_jax.methods import fitted_predictions, heads, interface
from cloc_jax.methods.logit_methods import fit_stage

NEIGHBOURS = 5  # whose mean label is the first guess
MOVES = 10  # of the window, at most
# Per rank: candidate pairs, and the training images on which they are compared.
PAIRS, QUERIES = 64, 256
REACH = 2  # ranks from the guess within which those images lie
CHUNK = 256  # validation images at a time
NARROWEST = 1e-10  # half a window of no width


class Comparator(nnx.Module):
    """Relative rank of a query image between two references, from features.

    The three linear layers on features are the parts of one layer on all of them,
    concatenated: what a pair or a query gives is computed once for all comparisons.
    """

    def __init__(self, features: int, hidden: int, dropout: float, *, rngs: nnx.Rngs):
        # lecun_normal for three times as many inputs.
        init = nnx.initializers.variance_scaling(1 / 3, "fan_in", "truncated_normal")
        part = functools.partial(nnx.Linear, features, hidden, kernel_init=init)
        self.from_lower = part(use_bias=False, rngs=rngs)
        self.from_upper = part(use_bias=False, rngs=rngs)
        self.from_query = part(rngs=rngs)
        self.inner = nnx.Linear(hidden, hidden, rngs=rngs)
        self.dropout = nnx.Dropout(dropout)
        self.output = nnx.Linear(hidden, 1, rngs=rngs)

    def of_pair(
        self, lower: Float[Array, "*rows dim"], upper: Float[Array, "*rows dim"]
    ) -> Float[Array, "*rows hidden"]:
        """What reference pairs give to the first layer."""
        return self.from_lower(lower) + self.from_upper(upper)

    def __call__(
        self,
        pair: Float[Array, "*#rows hidden"],
        query: Float[Array, "*#rows hidden"],
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "*rows"]:
        """rho of every query between the references of its pair."""
        x = jax.nn.relu(self.inner(jax.nn.relu(pair + query)))
        return jnp.tanh(self.output(self.dropout(x, rngs=rngs)))[..., 0]


def mwr(
    task: interface.Task, *, hidden: int, dropout: float, references: int
) -> interface.Method:
    """One stage; see `cloc_jax/config.py` for what each setting means."""
    interface.check_range("method.mwr", 1, hidden=hidden)
    interface.check_range("method.mwr", 0, 0.99, dropout=dropout)
    interface.check_range("method.mwr", 1, PAIRS, references=references)
    num_ranks = task.num_ranks

    def init(encoder, rngs):
        head = Comparator(encoder.features, hidden, dropout, rngs=rngs)
        return heads.Network(encoder, head)

    def loss(model, batch, rngs):
        # Together, so that they share their batch statistics.
        features = model.encoder(jnp.concatenate(batch["image"]))
        lower, upper, query = jnp.split(features, 3)
        head, mask = model.head, batch["mask"]
        predicted = head(head.of_pair(lower, upper), head.from_query(query), rngs)
        ranks = batch["label"].astype(predicted.dtype)
        wanted = relative_rank(ranks[:, 2], ranks[:, 0], ranks[:, 1])
        return masks.mean((predicted - wanted) ** 2, mask), {}

    def predict(model, images, support):
        value = estimate(model.head, model.encoder(images), support, num_ranks)
        return fitted_predictions.predict_value(value, support["scale"], num_ranks)

    def fit(model, train, val):
        graph, state = nnx.split(model.head)
        # On one device, and the same in every process.
        state = jax.tree.map(np.asarray, state)
        support = fit_references(graph, state, train, references, num_ranks)
        values = _estimate_all(graph, state, val.embeddings, support, num_ranks)
        fitted = fitted_predictions.fit_scale(np.asarray(values), val.labels, num_ranks)
        return support | fitted

    stage = fit_stage(loss, task.limits, sampler="triples")
    return interface.Method(init, (stage,), heads.features, predict, fit)


def relative_rank(
    rank: Float[Array, "*#shape"],
    lower: Float[Array, "*#shape"],
    upper: Float[Array, "*#shape"],
) -> Float[Array, "*shape"]:
    """rho: -1 at the lower end of the window, 1 at the upper one, clipped.

    In a window of no width it is 0 at its rank and -1 or 1 elsewhere.
    """
    half = jnp.maximum((upper - lower) / 2, NARROWEST)
    return jnp.clip((rank - (lower + upper) / 2) / half, -1, 1)


def window(rank: int, present: np.ndarray) -> tuple[int, int]:
    """Ranks of the references for a guess: one below and one above, cut to the range.

    Where those have no images, the next ones beyond that are `present` (sorted).
    """
    below, above = present[present < rank], present[present > rank]
    lower = below[-1] if len(below) else present[0]
    upper = above[0] if len(above) else present[-1]
    return int(lower), int(upper)


class Candidates(NamedTuple):
    """Items of the training data to choose references from, and to compare them on."""

    pairs: Int[np.ndarray, "rank pair 2"]  # the lower and the upper reference
    counts: Int[np.ndarray, " rank"]  # how many of the pairs differ; they come first
    queries: Int[np.ndarray, "rank query"]
    is_query: Bool[np.ndarray, "rank query"]  # False for padding


def draw_candidates(labels: Int[np.ndarray, " item"], num_ranks: int) -> Candidates:
    """For the guess of every rank, random pairs of its window and images around it.

    The same at every call. A rank far from all images has no query.
    """
    rng = np.random.default_rng(0)
    present = np.unique(labels)
    pairs = np.empty((num_ranks, PAIRS, 2), np.int32)
    counts = np.empty(num_ranks, np.int32)
    queries = np.zeros((num_ranks, QUERIES), np.int32)
    is_query = np.zeros((num_ranks, QUERIES), bool)
    for rank in range(num_ranks):
        lower, upper = (np.flatnonzero(labels == r) for r in window(rank, present))
        possible = len(lower) * len(upper)
        counts[rank] = min(possible, PAIRS)
        drawn = rng.choice(possible, counts[rank], replace=False)
        items = np.stack([lower[drawn // len(upper)], upper[drawn % len(upper)]], 1)
        pairs[rank] = np.resize(items, (PAIRS, 2))
        near = np.flatnonzero(np.abs(labels - rank) <= REACH)
        chosen = rng.choice(near, min(len(near), QUERIES), replace=False)
        queries[rank, : len(chosen)] = chosen
        is_query[rank, : len(chosen)] = True
    return Candidates(pairs, counts, queries, is_query)


def fit_references(
    graph: nnx.GraphDef,
    state: Any,
    train: interface.Labelled,
    references: int,
    num_ranks: int,
) -> interface.Support:
    """The training embeddings, and for every rank the best pairs of references.

    Where a rank has fewer pairs than `references`, they are repeated.
    """
    bank = np.asarray(train.embeddings, np.float32)
    labels = np.asarray(train.labels, np.int32)
    drawn = draw_candidates(labels, num_ranks)
    errors = np.asarray(_all_pair_errors(graph, state, bank, labels, drawn))
    best = np.empty((num_ranks, references, 2), np.int32)
    for rank, count in enumerate(drawn.counts):
        order = np.argsort(errors[rank, :count], kind="stable")
        best[rank] = drawn.pairs[rank, np.resize(order, references)]
    return {"bank": bank, "labels": labels, "pairs": best}


@functools.partial(jax.jit, static_argnums=0)
def _all_pair_errors(graph, state, bank, labels, drawn: Candidates):
    """Errors [rank, pair] of all candidates; a rank at a time, to save memory."""
    head = nnx.merge(graph, state)
    return jax.lax.map(
        lambda of_rank: pair_errors(head, bank, labels, *of_rank),
        (drawn.pairs, drawn.queries, drawn.is_query),
    )


def pair_errors(
    head: Any,
    bank: Float[Array, "item dim"],
    labels: Int[Array, " item"],
    pairs: Int[Array, "pair 2"],
    queries: Int[Array, " query"],
    where: Bool[Array, " query"],
) -> Float[Array, " pair"]:
    """Mean squared error of rho of the queries between the references of each pair.

    0 where there are no queries.
    """
    ranks = labels.astype(bank.dtype)
    references = head.of_pair(bank[pairs[:, 0]], bank[pairs[:, 1]])
    asked = head.from_query(bank[queries])
    predicted = head(references[:, None], asked[None])  # [pair, query]
    ends = ranks[pairs]
    wanted = relative_rank(ranks[queries][None], ends[:, :1], ends[:, 1:])
    errors = jnp.sum((predicted - wanted) ** 2, axis=1, where=where[None])
    return errors / jnp.maximum(where.sum(), 1)


def estimate(
    head: Any, embeddings: Float[Array, "batch dim"], support: Any, num_ranks: int
) -> Float[Array, " batch"]:
    """Ranks, not rounded: from the mean label of neighbours on, by moving windows."""
    bank, labels = support["bank"], support["labels"]
    count = min(NEIGHBOURS, bank.shape[0])
    neighbours = fitted_predictions.neighbour_labels(embeddings, bank, labels, count)
    guess = jnp.round(neighbours.mean(1)).astype(jnp.int32)
    return move_windows(head, embeddings, guess, support, num_ranks)


def move_windows(
    head: Any,
    embeddings: Float[Array, "batch dim"],
    guess: Int[Array, " batch"],
    support: Any,
    num_ranks: int,
) -> Float[Array, " batch"]:
    """Ranks, not rounded, from windows that start around a guess.

    The mean over a rank's reference pairs of rho mapped back to ranks gives the next
    guess, until no guess changes, at most MOVES times.
    """
    pairs = support["pairs"]  # [rank, reference, 2]
    bank = jnp.asarray(support["bank"]).astype(embeddings.dtype)
    ends = jnp.asarray(support["labels"])[pairs].astype(embeddings.dtype)
    references = head.of_pair(bank[pairs[..., 0]], bank[pairs[..., 1]])
    asked = head.from_query(embeddings)[:, None]  # [batch, 1, hidden]

    def goes_on(state):
        moves, changed, _, _ = state
        return changed & (moves < MOVES)

    def move(state):
        moves, _, guess, _ = state
        rho = head(references[guess], asked)  # [batch, reference]
        lower, upper = ends[guess, :, 0], ends[guess, :, 1]
        # The inverse of `relative_rank`, where that clips nothing.
        value = ((lower + upper) / 2 + rho * (upper - lower) / 2).mean(1)
        rounded = jnp.clip(jnp.round(value), 0, num_ranks - 1).astype(guess.dtype)
        return moves + 1, jnp.any(rounded != guess), rounded, value

    start = (jnp.int32(0), jnp.bool(True), guess, guess.astype(embeddings.dtype))
    return jax.lax.while_loop(goes_on, move, start)[3]


@functools.partial(jax.jit, static_argnums=(0, 4))
def _estimate_all(graph, state, embeddings, support, num_ranks: int):
    """`estimate` of any number of embeddings, some at a time."""
    head = nnx.merge(graph, state)

    def of_one(embedding):
        return estimate(head, embedding[None], support, num_ranks)[0]

    return jax.lax.map(of_one, embeddings, batch_size=CHUNK)
