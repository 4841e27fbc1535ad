"""Plays what a run has learned: `python -m agents play RUN_DIR --video=out.mp4`."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.commands.flags import Parser, a_path, count
from agents.commands.loading import add_arguments, find_folder
from agents.commands.video import Film, Moment, check_file
from agents.errors import UsageError
from rbs_tf.returns import LONGEST_EPISODE

if TYPE_CHECKING:
    from agents import Agent
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment as Environment

EXAMPLES = """\
examples:
  python -m agents play runs/quickstart-minatar_space_invaders-return-seed0
  python -m agents play RUN_DIR --episodes=1 --video=out.mp4
  python -m agents play RUN_DIR --checkpoint=latest --head=unclipped_0.99
  python -m agents play --pretrained=pong --heads
"""
SIDE_BY_SIDE = 16  # environments at most; a film is of one episode after the other
EPISODES, EPISODES_A_HEAD = 10, 20


def moments(
    agent: Agent, environment: Environment, episodes: int, max_steps: int = LONGEST_EPISODE
) -> Iterator[Moment]:
    """Plays as the run's evaluations do and hands out every step of every episode as it happens.

    Environment i of a batch of N plays episodes i + 1, i + 1 + N, and so on, however long they take. The episodes that
    finish first would be short ones.

    Args:
      agent: what acts.
      environment: where, see `Agent.make_environment`.
      episodes: how many in all.
      max_steps: environment steps after which an episode is cut.
    """
    import tensorflow as tf

    batch = environment.batch_size
    episode = 1 + np.arange(batch)  # which one each environment plays
    while np.any(episode <= episodes):
        time_step = environment.reset()
        agent.reset()
        waits = np.zeros(batch, bool)  # after a cut, for the others: there is only one reset for all
        steps = np.zeros(batch, int)
        score = np.zeros(batch)
        values = np.zeros((batch, len(agent.heads)), np.float32)
        while np.any(plays := (episode <= episodes) & ~waits):
            first, last = time_step.is_first(), time_step.is_last()
            reward = time_step.reward.astype(float)
            steps = np.where(first, 0, steps + 1)
            score = np.where(first, 0.0, score + reward)
            cut = ~last & (steps == max_steps)
            ended = last | cut
            agent.reset(first)
            action = agent.act(time_step.observation, reward)
            values = np.where(ended[:, None], values, agent.values)
            for index in np.flatnonzero(plays):
                yield Moment(
                    int(episode[index]),
                    int(steps[index]),
                    tf.nest.map_structure(operator.itemgetter(index), time_step.observation),
                    float(reward[index]),
                    float(score[index]),
                    values[index],
                    None if ended[index] else int(action[index]),
                    bool(ended[index]),
                    bool(cut[index]),
                )
            episode = episode + batch * (plays & ended)
            waits = waits | cut
            time_step = environment.step(action)


def interval(returns: Sequence[float]) -> tuple[float, float]:
    """Student's 95% interval of the mean of independent, normally distributed returns, at least two."""
    from scipy import stats

    half = stats.t.ppf(0.975, len(returns) - 1) * np.std(returns, ddof=1) / np.sqrt(len(returns))
    return float(np.mean(returns) - half), float(np.mean(returns) + half)


def main(argv: Sequence[str]) -> int:
    """Plays what the arguments ask for; returns the exit code 0.

    Raises:
      UsageError: it cannot be done.
    """
    what = "Plays what a run has learned, as its evaluations do; the run may go on."
    parser = Parser(prog="python -m agents play", description=what, epilog=EXAMPLES)
    add_arguments(parser)
    flag = parser.add_argument
    number = f"how many ({EPISODES}; {EPISODES_A_HEAD} of each head)"
    flag("--episodes", type=count(1), metavar="N", help=number)
    flag("--heads", action="store_true", help="let every head act in turn, and say how each does")
    cut = "steps until an episode is cut (%(default)s)"
    flag("--max_steps", type=count(1), default=LONGEST_EPISODE, metavar="N", help=cut)
    flag("--seed", type=count(0), default=0, metavar="N", help="of the environments (%(default)s)")
    film = "film it: out.mp4 (needs the extra `video`), or out.gif"
    flag("--video", type=a_path, metavar="FILE", help=film)
    options = parser.parse_args(argv)
    if options.heads and (options.head or options.video):
        other = "--head" if options.head else "--video"
        raise UsageError(f"--heads plays all heads, and {other} is about one. Leave out one of the two.")
    options.episodes = options.episodes or (EPISODES_A_HEAD if options.heads else EPISODES)
    options.run_dir = find_folder(options)
    if options.video:
        check_file(options.video)
    # All that can be known to be wrong without TensorFlow has been refused.
    num_envs = 1 if options.video else min(options.episodes, SIDE_BY_SIDE)
    from agents import Agent

    agent = Agent.load(options.run_dir, options.checkpoint, options.head)
    with contextlib.closing(agent.make_environment(num_envs, options.seed)) as environment:
        _play(agent, environment, options)
    return 0


def _play(agent: Agent, environment: Environment, options: Any) -> None:
    """Plays, prints a line per episode in their order or one per head, and films."""
    epsilon = float(agent.tf_agent.policy.epsilons[0])
    random = f" As in its evaluations, {100 * epsilon:.3g}% of its actions are random." if epsilon else ""
    chosen = "" if options.heads else f" {agent.chosen}"
    print(f"{agent.name}. {agent.weights}{chosen}{random}", flush=True)
    play = functools.partial(moments, agent, environment, options.episodes, options.max_steps)
    if options.heads:
        for name in agent.heads.names:
            agent.let_act(name)
            ended = [each for each in play() if each.ended]
            print(f"{name}: {_summary(ended, environment.game)}", flush=True)
        return
    film = Film(options.video, agent, environment, options.seed) if options.video else None
    ends: dict[int, Moment] = {}
    played: list[Moment] = []
    try:
        for moment in play():
            if film:
                film.add(moment)
            if moment.ended:
                ends[moment.episode] = moment
            while end := ends.pop(len(played) + 1, None):
                played.append(end)
                score = f"return {end.episode_return:.6g}"
                cut = ", cut there" if end.cut else ""
                print(f"episode {end.episode}: {score}, {end.step:,} steps{cut}", flush=True)
    finally:
        if film:
            film.close()
    print(_summary(played, environment.game))
    if film:
        print(film.words)


def _summary(ended: Sequence[Moment], game: str | None) -> str:
    """What episodes came to, by their last moments."""
    from agents.workers.evaluator import describe_returns
    from rbs_tf import scores

    returns = [end.episode_return for end in ended]
    mean = float(np.mean(returns))
    words = f"mean return {mean:.6g}"
    if len(returns) > 1:
        low, high = interval(returns)
        episodes = describe_returns(np.array(returns), np.array([end.step for end in ended]))
        words += f", 95% interval [{low:.6g}, {high:.6g}], {episodes}"
    if scores.has_score(game) and not any(end.cut for end in ended):
        words += f"; human-normalised {scores.human_normalised_score(game, mean):.3g}"
    return words
