"""Draws in proportion to weights that change, in O(log n) each, many at once."""

from __future__ import annotations

import numpy as np


class SumTree:
    """A weight for each of n places, 0 at first; a binary tree of their sums.

    A sum is always that of its two halves as they are, never changed by a difference, so that it does not drift: the
    tree depends on the current weights only.
    """

    def __init__(self, size: int):
        self._leaves = 1 << (size - 1).bit_length()
        # The root at 1, the halves of node k at 2 k and 2 k + 1, the weights from `_leaves` on.
        self._sums = np.zeros(2 * self._leaves)
        self._stale: list[np.ndarray] = []

    def set(self, places: np.ndarray, weights: np.ndarray | float) -> None:
        """Sets weights [K], finite and not negative, at places int [K]; of equal places the last counts."""
        nodes = self._leaves + places
        self._sums[nodes] = weights
        self._stale.append(nodes)

    def weights(self, places: np.ndarray) -> np.ndarray:
        """Weights float64 [K] at places [K]."""
        return self._sums[self._leaves + places]

    @property
    def total(self) -> float:
        """The sum of all weights; brings the sums up to date."""
        if self._stale:
            nodes = np.concatenate(self._stale)
            self._stale.clear()
            for _ in range(self._leaves.bit_length() - 1):
                nodes = nodes // 2
                self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]
        return float(self._sums[1])

    def draw(self, uniform: np.ndarray) -> np.ndarray:
        """Places int64 [K] for numbers float64 [K] from [0, 1): each with probability weight / total.

        A place of weight 0 is never drawn, whatever rounding does, unless all are 0.
        """
        sums = self._sums
        rest = uniform * self.total
        nodes = np.ones(len(uniform), np.int64)
        for _ in range(self._leaves.bit_length() - 1):
            nodes *= 2
            left = sums[nodes]
            # Rounded, the rest may reach past the end of what is left: into a half that sums to 0.
            right = (rest >= left) & (sums[nodes + 1] > 0.0)
            rest -= np.where(right, left, 0.0)
            nodes += right
        return nodes - self._leaves
