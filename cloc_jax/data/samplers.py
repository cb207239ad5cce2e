"""Samplers: which items are in training batch number `step`.

Batch `step` is a pure function of the seed and the step, all that a resumed run needs.
"""

import functools
from collections.abc import Sequence

import numpy as np

from cloc_jax.config import check_choice

MODES = ("natural", "balanced")


class Sampler:
    """Item indices of every training batch; here rows of a table for each epoch."""

    batch_size: int  # rows
    steps_per_epoch: int
    left_out: int  # items that an epoch does not see

    def __init__(self, seed: Sequence[int]):
        # The epochs of neighbouring steps, since threads read a little ahead.
        self._table = functools.lru_cache(maxsize=3)(
            lambda epoch: self._draw(np.random.default_rng((*seed, epoch)))
        )

    def batch(self, step: int) -> np.ndarray:
        """Items [row], or [row, items per row], of training batch `step`, from 0."""
        epoch, row = divmod(step, self.steps_per_epoch)
        return self._table(epoch)[row]

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        """The batches of an epoch, [step, batch_size]."""
        raise NotImplementedError


def make(
    name: str,
    labels: np.ndarray,
    batch_size: int,
    *,
    mode: str,
    seed: Sequence[int],
    ranks: Sequence[str],
) -> Sampler:
    """The sampler "rank_pairs", "shuffled" or "triples" of training items with labels.

    `mode` is "natural" or "balanced", for rank_pairs; `ranks` are names, for messages.
    """
    if name == "rank_pairs":
        return RankPairs(labels, batch_size, mode=mode, seed=seed, ranks=ranks)
    if name == "shuffled":
        return Shuffled(len(labels), batch_size, seed=seed)
    return Triples(labels, batch_size, seed=seed)


class RankPairs(Sampler):
    """Batches made of pairs, two samples of one rank.

    Every batch holds at least two ranks and at least two samples of each rank in it
    (paper, section Training), so that each anchor has a positive and each contrast a
    negative. A batch of one rank only is mended by swapping a pair.

    `natural` keeps the data's own proportions: each item is seen at most once per
    epoch, and a remainder, another one in each epoch, is not. It is large only where
    one rank is so common that some batches would hold nothing else. `balanced` gives
    each batch the ranks in equal parts; rare ones are repeated within the epoch.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        batch_size: int,
        *,
        mode: str = "natural",
        seed: Sequence[int] = (0,),
        ranks: Sequence[str] = (),
    ):
        super().__init__(seed)
        labels = np.asarray(labels)
        _check(labels, batch_size, mode, ranks)
        self.batch_size = batch_size
        self._mode = mode
        self._items = [np.flatnonzero(labels == r) for r in np.unique(labels)]
        pairs = np.array([len(items) // 2 for items in self._items])
        if mode == "balanced":
            self.steps_per_epoch = max(len(labels) // batch_size, 1)
        else:
            # Each batch needs a pair that is not of the most common rank.
            others = int(pairs.sum() - pairs.max())
            self.steps_per_epoch = min(int(pairs.sum()) * 2 // batch_size, others)
        self.left_out = max(len(labels) - self.steps_per_epoch * batch_size, 0)

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        return self._balanced(rng) if self._mode == "balanced" else self._natural(rng)

    def _natural(self, rng: np.random.Generator) -> np.ndarray:
        pairs, ranks = [], []
        for rank, items in enumerate(self._items):
            shuffled = rng.permutation(items)[: len(items) // 2 * 2]
            pairs.append(shuffled.reshape(-1, 2))
            ranks.append(np.full(len(shuffled) // 2, rank))
        order = rng.permutation(sum(map(len, pairs)))
        table = np.concatenate(pairs)[order]
        rank_of = np.concatenate(ranks)[order]
        swaps = _mend(rank_of, self.steps_per_epoch, self.batch_size // 2)
        for a, b in swaps:
            table[[a, b]] = table[[b, a]]
        used = self.steps_per_epoch * self.batch_size // 2
        return table[:used].reshape(self.steps_per_epoch, self.batch_size)

    def _balanced(self, rng: np.random.Generator) -> np.ndarray:
        slots, num_ranks = self.batch_size // 2, len(self._items)
        queues = [np.empty(0, int) for _ in self._items]
        table = []
        for _ in range(self.steps_per_epoch):
            # Equal parts, and the rest to ranks that change from batch to batch.
            counts = np.full(num_ranks, slots // num_ranks)
            counts[rng.permutation(num_ranks)[: slots % num_ranks]] += 1
            batch = []
            for rank in np.flatnonzero(counts):
                size, items = 2 * counts[rank], self._items[rank]
                taken, queues[rank] = _take(queues[rank], items, size, rng)
                batch.append(taken)
            table.append(np.concatenate(batch))
        return np.array(table)


class Shuffled(Sampler):
    """Every item once per epoch in random order, less a remainder of under a batch.

    A batch's make-up tells a self-supervised method nothing about labels.
    """

    def __init__(self, count: int, batch_size: int, *, seed: Sequence[int] = (0,)):
        super().__init__(seed)
        if not 2 <= batch_size <= count:
            raise ValueError(
                f"train.batch_size is {batch_size}, but there are {count} training "
                f"images; use 2 to {count}."
            )
        self.batch_size, self.steps_per_epoch = batch_size, count // batch_size
        self.left_out = count - self.steps_per_epoch * batch_size
        self._count = count

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        order = rng.permutation(self._count)[: self._count - self.left_out]
        return order.reshape(self.steps_per_epoch, self.batch_size)


class Triples(Shuffled):
    """Rows of three items: a lower reference, an upper reference and a query.

    Every item is the lower reference once per epoch. The upper one is two ranks above
    it, or of the nearest rank that has images; the query lies inside the window with
    probability 0.4, at its lower or upper end with 0.2 each, below or above it with
    0.1 each, kinds without images left out (MWR's proportions, for ranks).
    """

    SHARES = (0.1, 0.2, 0.4, 0.2, 0.1)  # below, lower end, inside, upper end, above
    WINDOW = 2  # ranks

    def __init__(
        self, labels: np.ndarray, batch_size: int, *, seed: Sequence[int] = (0,)
    ):
        # Items are shuffled as if labels did not matter; their partners are drawn.
        super().__init__(len(labels), batch_size, seed=(*seed, 0))
        self._labels = np.asarray(labels)
        self._seed, self._present = tuple(seed), np.unique(self._labels)
        self._items = {r: np.flatnonzero(self._labels == r) for r in self._present}
        # The pipeline asks for a batch once for each of its rows.
        self._drawn = functools.lru_cache(maxsize=32)(self._triples)

    def batch(self, step: int) -> np.ndarray:
        """Items [row, 3]: lower reference, upper reference, query."""
        return self._drawn(step)

    def _triples(self, step: int) -> np.ndarray:
        rng, lower = np.random.default_rng((*self._seed, 1, step)), super().batch(step)
        return np.array([self._triple(int(i), rng) for i in lower])

    def _triple(self, lower: int, rng: np.random.Generator) -> tuple[int, int, int]:
        low = self._labels[lower]
        wanted = min(low + self.WINDOW, self._present[-1])
        high = self._present[np.argmin(np.abs(self._present - wanted))]
        present = self._present
        kinds = (
            present[present < low],
            present[present == low],
            present[(present > low) & (present < high)],
            present[present == high],
            present[present > high],
        )
        has_images = [bool(len(kind)) for kind in kinds]
        shares = np.array(self.SHARES) * has_images
        kind = kinds[rng.choice(len(kinds), p=shares / shares.sum())]
        upper, query = (
            int(rng.choice(self._items[rank])) for rank in (high, rng.choice(kind))
        )
        return lower, upper, query


def _mend(rank_of: np.ndarray, num_batches: int, pairs_each: int):
    """Swaps of pairs after which no batch has one rank only; changes `rank_of` too.

    A batch of rank c alone takes a pair of another rank from the remainder or from a
    batch that stays mixed without it. There is one: otherwise every other batch held at
    most one pair that is not c, fewer in all than there are batches.
    """
    used = num_batches * pairs_each
    batches = rank_of[:used].reshape(num_batches, pairs_each)
    swaps = []
    for index in np.flatnonzero((batches == batches[:, :1]).all(1)):
        rank = batches[index, 0]
        if (batches[index] != rank).any():
            continue  # mended already, by giving a pair to an earlier batch
        different = batches != rank  # [batch, pair]
        gives = (different.sum(1) >= 2) & (np.arange(num_batches) != index)
        place = int(index) * pairs_each
        rest = np.flatnonzero(rank_of[used:] != rank)
        if len(rest):
            other = used + int(rest[0])
        else:
            giver = int(np.flatnonzero(gives)[0])
            other = giver * pairs_each + int(np.flatnonzero(different[giver])[0])
        rank_of[[place, other]] = rank_of[[other, place]]
        swaps.append((place, other))
    return swaps


def _take(queue, items, size, rng):
    """`size` items off a queue of shuffled rounds, no item twice while others wait."""
    while len(queue) < size:
        # A new round starts with what this batch does not hold yet.
        shuffled = rng.permutation(items)
        held = np.isin(shuffled, queue)
        queue = np.concatenate([queue, shuffled[~held], shuffled[held]])
    return queue[:size], queue[size:]


def _check(labels, batch_size, mode, ranks):
    check_choice("train.sampling", mode, MODES)
    present, counts = np.unique(labels, return_counts=True)
    names = [repr(ranks[rank]) if len(ranks) else str(rank) for rank in present]
    if len(present) < 2 or counts.min() < 2:
        listed = ", ".join(
            f"{n} of {name}" for name, n in zip(names, counts, strict=True)
        )
        raise ValueError(
            f"the training data hold {listed or 'no images'}; learning an order needs "
            "at least two ranks with two images each. Check data.root and data.order, "
            "or add images."
        )
    most = int((counts // 2).sum()) * 2
    if batch_size % 2 or not 4 <= batch_size <= most:
        raise ValueError(
            f"train.batch_size is {batch_size}; batches are made of pairs of one rank "
            f"from at least two ranks, so it must be even, 4 or more, and at most "
            f"{most} with these {len(labels)} training images."
        )
