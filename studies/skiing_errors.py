"""Errors that Skiing's rewards make under each variant of the scale: played, measured and learned from.

`studies.skiing` says what this is about, and draws it.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import discounted_returns
from studies import figure

DISCOUNTS = (0.0, 0.9, 0.99, 0.999, 1.0)
CLIPS = np.repeat([True, False], len(DISCOUNTS))  # bool [H]
GAMMAS = np.tile(DISCOUNTS, 2)  # float64 [H]
NAMES = tuple(
    f"{'clipped' if clip else 'unclipped'} {gamma:g}" for clip, gamma in zip(CLIPS, GAMMAS, strict=True)
)
ROUND = 40  # steps of each environment between reports
N_STEP = 5  # of the paper's agent
BATCH = 32  # sequences of `ROUND` steps
STEPS_PER_UPDATE = 4  # of the environments, as in DQN; a replay ratio of 1, as in the paper, would be 1280
LEARNING_RATE, BETAS, EPSILON = 2e-4, (0.9, 0.999), 1e-6
STORED = 20  # updates between those whose numbers are kept
CHUNK = 1000  # updates whose batches are drawn together


class Variant(NamedTuple):
    """A divisor of errors, and a start of values.

    Attributes:
      colour: in the figure.
      reward: "variance" V[R]; "square" E[R^2]; "square at first", until a return is known.
      mean_error: "" no term; "sum" sqrt(scale^2 + E[delta]^2); "max" max(scale, abs(E[delta])).
      bias: "" zero values; "returns" E[G] once the first are known; "steps" what steps say until then.
    """

    colour: str
    reward: str = "variance"
    mean_error: str = ""
    bias: str = ""


VARIANTS = {
    "sigma alone": Variant(figure.COLOURS["unscaled"]),
    "value bias E[G]": Variant("tab:blue", bias="returns"),
    "value bias from steps": Variant(figure.COLOURS["false friend"], bias="steps"),
    "E[R^2] until a return": Variant(figure.COLOURS["reference"], reward="square at first"),
    "E[R^2] for good": Variant("black", reward="square"),
    "mean error (sum of squares)": Variant("tab:olive", mean_error="sum"),
    "mean error (max)": Variant(figure.COLOURS["scaled"], mean_error="max"),
    "mean error (max) and E[G]": Variant("darkgreen", mean_error="max", bias="returns"),
}
PAPER, BIASED, *_, REMEDY, BOTH = range(len(VARIANTS))  # rows
ADDED, FLOORED = (
    np.array([[variant.mean_error == kind] for variant in VARIANTS.values()]) for kind in ("sum", "max")
)


class Recording(NamedTuple):
    """K steps of N environments under a random policy.

    Attributes:
      rewards: float64 [K, N].
      discounts: float64 [K, N], the environment's: 1, or 0 at a true end.
      last: bool [K, N], ends of episodes.
      arrived: bool [K, N]; False where a new episode begins, which is no transition.
    """

    rewards: np.ndarray
    discounts: np.ndarray
    last: np.ndarray
    arrived: np.ndarray

    @property
    def episodes(self) -> list[tuple[np.ndarray, int]]:
        """Finds, of each finished one, its rows in the recording, int [T], and its environment."""
        found = []
        for i, (last, arrived) in enumerate(zip(self.last.T, self.arrived.T, strict=True)):
            stretches = np.split(np.arange(len(last)), np.flatnonzero(last) + 1)[:-1]
            found += [(rows[arrived[rows]], i) for rows in stretches]
        return found


class Statistics(NamedTuple):
    """Statistics after each of K reports, for H heads and M variants.

    Attributes:
      steps: int [K], environment steps of all environments together.
      sigma: float64 [K, H].
      floors: float64 [K, M, H], max(sigma, sigma_v), sigma as the variant has it.
      biases: float64 [K, M, H], where the variant wants values to start.
      first: the report with the first returns; K if there is none.
    """

    steps: np.ndarray
    sigma: np.ndarray
    floors: np.ndarray
    biases: np.ndarray
    first: int


class Curves(NamedTuple):
    """Batches that were learned from, P of them, for M variants and H heads.

    Attributes:
      steps: int [P], environment steps that had been reported.
      updates: int [P], updates before it; 0 for values that stand still.
      values: float64 [P, M, H], the constant value.
      scales: float64 [P, M, H], what errors were divided by.
      errors: float64 [P, M, H], root mean square of the scaled errors.
      gradients: float64 [P, M, H], abs(E[delta]) / scale^2: the gradient with respect to a value, averaged over the
        batch with its sign, because a layer that all steps and heads share adds it up: offsets stay, noise cancels.
    """

    steps: np.ndarray
    updates: np.ndarray
    values: np.ndarray
    scales: np.ndarray
    errors: np.ndarray
    gradients: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Shares of each head in the sum of all heads' gradients, float64 [P, M, H]; 0 where nothing is learned."""
        total = self.gradients.sum(axis=-1, keepdims=True)
        return np.divide(self.gradients, total, out=np.zeros_like(self.gradients), where=total > 0)


def record(name: str, num_envs: int, steps: int, seed: int = 0) -> Recording:
    """Plays whole rounds, until there are `steps` steps of all environments together."""
    from rbs_tf import environments  # TensorFlow: seconds that the pure functions need not wait

    environment = environments.make(name, num_envs, seed=seed)
    actions = np.random.default_rng(seed)
    rows = []
    try:
        environment.reset()
        for _ in range(-(-steps // (ROUND * num_envs)) * ROUND):
            action = actions.integers(environment.num_actions, size=num_envs, dtype=np.int32)
            step = environment.step(action)
            rows.append((step.reward.astype(np.float64), step.discount, step.is_last(), ~step.is_first()))
    finally:
        environment.close()
    return Recording(*(np.stack(column) for column in zip(*rows, strict=True)))


def head_columns(rewards: np.ndarray, discounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and discounts as each head sees them: [...] -> float64 [..., H], twice."""
    rewards, discounts = np.asarray(rewards, np.float64)[..., None], np.asarray(discounts)[..., None]
    return np.where(CLIPS, np.clip(rewards, -1.0, 1.0), rewards), discounts * GAMMAS


def value_from_steps(mean_reward: np.ndarray, mean_discount: np.ndarray, steps: int) -> np.ndarray:
    """E[R] (1 - E[gamma]^n) / (1 - E[gamma]), E[R] n for E[gamma] = 1: the return of n steps, cut there. [H] each."""
    horizon = np.where(mean_discount < 1.0, 1.0 - mean_discount, 1.0)
    return mean_reward * np.where(mean_discount < 1.0, (1.0 - mean_discount**steps) / horizon, steps)


def total_scale(
    floors: np.ndarray,
    mean_errors: np.ndarray,
    added: bool | np.ndarray = False,
    floored: bool | np.ndarray = True,
) -> np.ndarray:
    """The remedy: max(floor, abs(E[delta])) where `floored`, sqrt(floor^2 + E[delta]^2) where `added`.

    Args:
      floors: [..., H], max(sigma, sigma_v, sigma_batch).
      mean_errors: [..., H], each head's TD error averaged over the batch, with its sign.
      added, floored: against [..., H]; where both are False the floor itself.
    """
    scale = np.sqrt(np.square(floors) + added * np.square(mean_errors))
    return np.maximum(scale, floored * np.abs(mean_errors))


def statistics(recording: Recording, sigma_v: float) -> Statistics:
    """Everything that reports tell, one per round."""
    rewards, discounts = head_columns(recording.rewards, recording.discounts)
    reports = []
    for start in range(0, len(rewards), ROUND):
        new, arrived = slice(start, start + ROUND), recording.arrived[start : start + ROUND]
        reports.append(ReturnMoments.from_steps(rewards[new][arrived], discounts[new][arrived]))
    for rows, i in recording.episodes:
        returns = ReturnMoments.from_returns(discounted_returns(rewards[rows, i], discounts[rows, i]))
        reports[rows[-1] // ROUND] = ReturnMoments.merge(reports[rows[-1] // ROUND], returns)
    known = list(itertools.accumulate(reports, ReturnMoments.merge))
    heard = np.array([report.return_count[0] > 0 for report in known])
    first = int(heard.argmax()) if heard.any() else len(known)
    sigma = np.array([report.sigma for report in known])
    squares = np.sqrt(np.square(sigma) + np.square([report.reward_mean for report in known]))
    floors = np.empty((len(known), len(VARIANTS), len(GAMMAS)))
    biases = np.zeros_like(floors)
    for row, variant in enumerate(VARIANTS.values()):
        until = {"variance": 0, "square at first": first, "square": len(known)}[variant.reward]
        floors[:, row] = np.maximum(np.where(np.arange(len(known))[:, None] < until, squares, sigma), sigma_v)
        if variant.bias == "steps":
            for k, report in enumerate(known[:first]):
                n = (k + 1) * ROUND
                biases[k, row] = value_from_steps(report.reward_mean, report.discount_mean, n)
        if variant.bias and first < len(known):
            biases[first:, row] = known[first].mean_return  # once: later it would overwrite what was learned
    return Statistics(np.array([int(report.count[0]) for report in known]), sigma, floors, biases, first)


def sequence_sums(recording: Recording) -> np.ndarray:
    """float64 [K, N, 7, H]: over each environment's steps of a round, of 1, R, R^2, d, d^2, R d and G^2.

    d is how much a discount falls short of the head's, which is exactly 0 inside episodes. Returns G are cut at the
    sequence's end, as in `rbs_tf.return_scaling.batch_sigma`.
    """
    rewards, discounts = head_columns(recording.rewards, recording.discounts)
    shortfalls = GAMMAS - discounts
    following = np.where((recording.last | ~recording.arrived)[..., None], 0.0, discounts)
    rounds = len(rewards) // ROUND
    shape = (rounds, ROUND, *rewards.shape[1:])
    rewards, shortfalls, following = (x.reshape(shape) for x in (rewards, shortfalls, following))
    returns, later = np.empty(shape), np.zeros_like(rewards[:, 0])
    for t in reversed(range(ROUND)):
        returns[:, t] = later = rewards[:, t] + following[:, t] * later
    real = recording.arrived.reshape(*shape[:-1], 1)
    columns = (
        np.ones(shape),
        rewards,
        rewards**2,
        shortfalls,
        shortfalls**2,
        rewards * shortfalls,
        returns**2,
    )
    return np.stack([np.where(real, column, 0.0).sum(axis=1) for column in columns], axis=2)


def batch_sigma(sums: np.ndarray) -> np.ndarray:
    """sqrt(V[R] + V[gamma] E[G^2]) of batches alone, from their sums [..., 7, H]; float64 [..., H]."""
    _, _, reward, shortfall, _ = _error_terms(sums)
    return np.sqrt(reward + shortfall * sums[..., 6, :] / sums[..., 0, :])


def error_moments(sums: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[delta] and V[delta] of constant values V, delta = R + gamma V - V, from a batch's sums.

    Args:
      sums: float64 [7, H].
      values: float64 [..., H].

    Returns:
      Two float64 [..., H].
    """
    mean, slope, reward, shortfall, both = _error_terms(sums)
    variance = reward + np.square(values) * shortfall - 2.0 * values * both
    return mean - slope * values, np.maximum(variance, 0.0)


def _error_terms(sums: np.ndarray) -> list[np.ndarray]:
    """E[R], 1 - E[gamma], V[R], V[gamma] and cov(R, d), each [..., H], from sums [..., 7, H]."""
    reward, square, short, short_square, cross = (sums[..., i, :] / sums[..., 0, :] for i in range(1, 6))
    return [
        reward,
        1.0 - GAMMAS + short,
        np.maximum(square - reward**2, 0.0),
        np.maximum(short_square - short**2, 0.0),
        cross - reward * short,
    ]


def standing(sums: np.ndarray, known: Statistics) -> Curves:
    """Each round's own steps, with values at the variant's bias that do not learn."""
    measured = []
    for new, floors, values in zip(sums.sum(axis=1), known.floors, known.biases, strict=True):
        mean, variance = error_moments(new, values)
        scale = total_scale(np.maximum(floors, batch_sigma(new)), mean, ADDED, FLOORED)
        measured.append((values, scale, np.sqrt(variance + mean**2) / scale, np.abs(mean) / scale**2))
    return Curves(known.steps, np.zeros_like(known.steps), *map(np.array, zip(*measured, strict=True)))


def learning(sums: np.ndarray, known: Statistics, updates: int, seed: int = 0) -> Curves:
    """One bias per head learns by semi-gradient descent on 1/2 (delta / scale)^2, from its first report on.

    Batches are drawn uniformly from what has been reported; when the recording is over, from all of it. The same
    batches for all variants.
    """
    (rounds, count), rng = sums.shape[:2], np.random.default_rng(seed)
    sequences = sums.reshape(rounds * count, *sums.shape[2:])
    before = known.steps[0] + STEPS_PER_UPDATE * np.arange(updates)
    reports = np.searchsorted(known.steps, before, side="right") - 1
    batches = rng.integers(0, ((reports + 1) * count)[:, None], size=(updates, BATCH))
    shifts = np.diff(known.biases, axis=0, prepend=0.0)
    values, momentum, squares = np.zeros((3, *shifts.shape[1:]))
    stored, report = [], -1
    for update in range(updates):
        part = update % CHUNK
        if part == 0:  # nothing about a batch depends on what has been learned
            drawn = sequences[batches[update : update + CHUNK]].sum(axis=1)
            means, slopes, *_ = _error_terms(drawn)
            sigmas = batch_sigma(drawn)
        if reports[update] != report:
            values = values + shifts[report + 1 : reports[update] + 1].sum(axis=0)
            report = reports[update]
        mean = means[part] - slopes[part] * values
        scale = total_scale(np.maximum(known.floors[report], sigmas[part]), mean, ADDED, FLOORED)
        gradient = -mean / scale**2
        if update % STORED == 0:
            _, variance = error_moments(drawn[part], values)
            stored.append((values, scale, np.sqrt(variance + mean**2) / scale, np.abs(gradient)))
        momentum = BETAS[0] * momentum + (1 - BETAS[0]) * gradient
        squares = BETAS[1] * squares + (1 - BETAS[1]) * gradient**2
        correction = np.sqrt(1 - BETAS[1] ** (update + 1)) / (1 - BETAS[0] ** (update + 1))
        values = values - LEARNING_RATE * correction * momentum / (np.sqrt(squares) + EPSILON)
    kept = np.arange(0, updates, STORED)
    return Curves(known.steps[reports[kept]], kept, *map(np.array, zip(*stored, strict=True)))


def offset_learned(curves: Curves, sums: np.ndarray, sigma_v: float) -> np.ndarray:
    """Updates until each head's mean error is no more than its noise for good, float64 [M, H]; inf for not yet.

    Noise is the standard deviation of its errors over the whole recording, but at least sigma_v.
    """
    mean, variance = error_moments(sums.sum(axis=(0, 1)), curves.values)
    learning = np.abs(mean) > np.maximum(np.sqrt(variance), sigma_v)
    following = np.append(curves.updates[1:], np.inf)[:, None, None]
    return np.where(learning, following, 0.0).max(axis=0)


class Summary(NamedTuple):
    """M variants on one game with values that stand still, H heads.

    Attributes:
      before, after: float64 [M, H], the largest root mean square of scaled errors of a round until the first return
        is known, and from then on; NaN without such rounds.
      share: float64 [M, H], of the gradient, mean over the rounds after.
      raised: the largest factor by which the mean error raises a scale, with or without value bias.
      raised_n: the same of errors of `N_STEP` steps, for zero values.
    """

    before: np.ndarray
    after: np.ndarray
    share: np.ndarray
    raised: float
    raised_n: float


def zero_value_errors(recording: Recording, n: int) -> np.ndarray:
    """abs(E[delta]) of n-step errors in each round where all values are 0, float64 [K, H]."""
    rewards, discounts = head_columns(recording.rewards, recording.discounts)
    following = np.where((recording.last | ~recording.arrived)[..., None], 0.0, discounts)
    errors = rewards
    for _ in range(n - 1):
        errors = rewards + following * np.append(errors[1:], np.zeros_like(errors[:1]), axis=0)
    rounds = (-1, ROUND * rewards.shape[1])
    real = recording.arrived.reshape(*rounds, 1)
    return np.abs(errors.reshape(*rounds, len(GAMMAS)).mean(axis=1, where=real))


def summarise(recording: Recording, curves: Curves, first: int) -> Summary:
    """`first` is the report with the first returns."""
    nothing = np.full((1, *curves.errors.shape[1:]), np.nan)
    before, after, shares = (
        part if len(part) else nothing
        for part in (curves.errors[:first], curves.errors[first:], curves.shares[first:])
    )
    raised = curves.scales[:, [REMEDY, BOTH]] / curves.scales[:, [PAPER, BIASED]]
    scales = curves.scales[:, PAPER]
    raised_n = total_scale(scales, zero_value_errors(recording, N_STEP)) / scales
    return Summary(before.max(axis=0), after.max(axis=0), shares.mean(axis=0), raised.max(), raised_n.max())
