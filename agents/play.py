"""Plays what a run has learned: `python -m agents.play RUN_DIR --video=out.mp4`."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.command_line import Parser, count
from agents.run_folder import UsageError
from agents.trained import Trained, add_arguments, check_folder, load
from rbs_tf.startup import quiet

EXAMPLES = """\
examples:
  python -m agents.play runs/quickstart-minatar_space_invaders-return-seed0
      ten episodes, greedily, with the weights of the best evaluation
  python -m agents.play RUN_DIR --episodes=1 --video=out.mp4
      with a video that shows what every head expects
  python -m agents.play RUN_DIR --checkpoint=latest --head=unclipped_0.99
      the newest weights, and a head of one's choice
"""


class Moment(NamedTuple):
    """One time step of an episode, and what the agent makes of it."""

    episode: int  # from 1
    step: int  # steps made before it in this episode
    observation: np.ndarray
    reward: float  # of the step that led here, units of the environment
    episode_return: float  # so far
    values: (
        np.ndarray
    )  # float32 [H], each head's highest value, see `Trained.values`; at an end those of before
    action: int | None  # taken here; None at an end
    ended: bool
    cut: bool  # ended only because it had lasted long enough


def moments(trained: Trained, episodes: int, max_steps: int = 27_000) -> Iterator[Moment]:
    """Plays greedily and hands out every step of every episode as it happens.

    Args:
      trained: what acts, and where.
      episodes: how many, one after the other.
      max_steps: environment steps after which an episode is cut.
    """
    import tensorflow as tf

    environment, policy = trained.environment, trained.agent.policy

    @tf.function(autograph=False)
    def act(time_step, state):
        step = policy.action(time_step, state)
        return step.action, step.state, trained.values(step.info.greedy_values)

    state = policy.get_initial_state(1)
    for episode in range(1, episodes + 1):
        time_step = environment.reset()
        episode_return = 0.0
        for step in range(max_steps + 1):
            reward = float(time_step.reward[0]) / environment.reward_multiplier if step else 0.0
            episode_return += reward
            ended, cut = bool(time_step.is_last()[0]), step == max_steps
            action = None
            if not (ended or cut):
                action, state, values = act(tf.nest.map_structure(tf.convert_to_tensor, time_step), state)
                action, values = action.numpy(), values.numpy()[0]
            yield Moment(
                episode,
                step,
                time_step.observation[0],
                reward,
                episode_return,
                values,
                None if action is None else int(action[0]),
                ended or cut,
                cut and not ended,
            )
            if ended or cut:
                break
            time_step = environment.step(action)


def interval(returns: Sequence[float]) -> tuple[float, float]:
    """Student's 95% interval of the mean of independent, normally distributed returns, at least two."""
    from scipy import stats

    half = stats.t.ppf(0.975, len(returns) - 1) * np.std(returns, ddof=1) / np.sqrt(len(returns))
    return float(np.mean(returns) - half), float(np.mean(returns) + half)


def main(argv: Sequence[str] | None = None) -> int:
    """Plays what the arguments ask for; returns the exit code: 0, 2 if it is refused, 130 on Ctrl-C."""
    try:
        options = _options(sys.argv[1:] if argv is None else argv)
        trained = load(options.run_dir, options.checkpoint, options.head, options.seed)
        with contextlib.closing(trained.environment):
            _play(trained, options)
    except UsageError as error:
        print(f"python -m agents.play: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _options(argv: Sequence[str]) -> Any:
    """Parses the flags and refuses, before TensorFlow is there, what can be known to be wrong."""
    parser = Parser(
        prog="python -m agents.play",
        description="Plays what a run has learned, greedily. The run folder stays as it is, and the run may go on.",
        epilog=EXAMPLES,
    )
    add_arguments(parser)
    flag = parser.add_argument
    flag("--episodes", type=count(1), default=10, metavar="N", help="how many (%(default)s)")
    flag(
        "--max_steps",
        type=count(1),
        default=27_000,
        metavar="N",
        help="steps until an episode is cut (%(default)s)",
    )
    flag("--seed", type=count(0), default=0, metavar="N", help="of the environment (%(default)s)")
    flag("--video", metavar="FILE", help="film it: out.mp4 (needs the extra `video`), or out.gif")
    options = parser.parse_args(argv)
    check_folder(options.run_dir, options.checkpoint)
    if options.video:
        from agents.video import check_file

        check_file(options.video)
    return options


def _play(trained: Trained, options: Any) -> None:
    """Plays, prints a line per episode, and films."""
    from rbs_tf import scores

    print(f"{trained.name}. {trained.origin}", flush=True)
    returns = []
    with contextlib.ExitStack() as closing:
        if options.video:
            from agents.video import Film

            film = closing.enter_context(contextlib.closing(Film(options.video, trained)))
        for moment in moments(trained, options.episodes, options.max_steps):
            if options.video:
                film.add(moment)
            if moment.ended:
                returns.append(moment.episode_return)
                cut = ", cut there" if moment.cut else ""
                print(
                    f"episode {moment.episode}: return {moment.episode_return:.6g}, {moment.step:,} steps{cut}",
                    flush=True,
                )
    mean = float(np.mean(returns))
    words = f"mean return {mean:.6g}"
    if len(returns) > 1:
        low, high = interval(returns)
        words += f", 95% interval [{low:.6g}, {high:.6g}], {len(returns)} episodes"
    game = trained.environment.game
    if scores.has_score(game):
        words += f"; human-normalised {scores.human_normalised_score(game, mean):.3g}"
    print(words)
    if options.video:
        print(film.words)


if __name__ == "__main__":
    quiet()  # before TensorFlow is imported
    sys.exit(main())
