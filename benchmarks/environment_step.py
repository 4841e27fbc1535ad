"""The step of our batched environments against a plain loop over raw ALE emulators with pixels.

    .venv/bin/python -m benchmarks.environment_step

Both play the same actions in as many games as often: the full action set, 0 to 30 no-ops first, four frames per step,
RGB screens, the maximum of the last two. The loop holds an `ale_py.ALEInterface` per game and writes every screen into
arrays made once; ours is `environments.make`, which adds step types, discounts, checks and the next episode's start.
Before anything is timed, the observations of both are compared.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.side_by_side import Row, one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import ale_py  # noqa: E402
import numpy as np  # noqa: E402

from rbs_tf import environments  # noqa: E402

GAMES, NUM_ENVS, STEPS, FRAMES_PER_STEP, MOST_NO_OPS = ("pong", "breakout"), 16, 40, 4, 30
Step = Callable[[np.ndarray], np.ndarray]  # actions [N] -> observations [N, 210, 160, 3]


def raw_loop(game: str, num_envs: int, no_ops: Callable[[], int]) -> Step:
    """Emulators stepped one after the other; a finished game starts again at its next step."""
    emulators = []
    for seed in range(num_envs):
        emulator = ale_py.ALEInterface()
        emulator.setInt("random_seed", seed)
        emulator.setFloat("repeat_action_probability", 0.0)
        emulator.loadROM(ale_py.roms.get_rom_path(game))
        emulators.append(emulator)
    actions_of = [emulator.getLegalActionSet() for emulator in emulators]
    height, width = emulators[0].getScreenDims()
    earlier = np.empty((height, width, 3), np.uint8)
    observations, rewards = np.empty((num_envs, height, width, 3), np.uint8), np.zeros(num_envs)
    ended = np.ones(num_envs, bool)

    def step(actions: np.ndarray) -> np.ndarray:
        for index, emulator in enumerate(emulators):
            latest = observations[index]
            if ended[index]:
                ended[index] = False
                emulator.reset_game()
                for _ in range(no_ops()):
                    emulator.act(ale_py.Action.NOOP)
                emulator.getScreenRGB(latest)
                continue
            action, reward = actions_of[index][actions[index]], 0
            for _ in range(FRAMES_PER_STEP - 1):
                reward += emulator.act(action)
            emulator.getScreenRGB(earlier)
            rewards[index] = reward + emulator.act(action)
            emulator.getScreenRGB(latest)
            np.maximum(earlier, latest, out=latest)
            ended[index] = emulator.game_over()
        return observations

    return step


def check(game: str) -> None:
    """Plays one game both ways, the raw one with every number of no-ops: one must show what ours shows.

    Raises:
      AssertionError: none does.
    """
    environment = environments.make(game, num_envs=1, seed=0)
    actions = np.random.default_rng(0).integers(environment.num_actions, size=(STEPS, 1), dtype=np.int32)
    ours = [environment.reset(), *map(environment.step, actions)]
    environment.close()
    for number in range(MOST_NO_OPS + 1):
        step = raw_loop(game, 1, lambda number=number: number)
        screens = map(step, (actions[0], *actions))
        if all(
            np.array_equal(screen, time_step.observation)
            for screen, time_step in zip(screens, ours, strict=True)
        ):
            return
    raise AssertionError(f"{game}: the raw loop shows other observations, whatever the number of no-ops")


def measure(game: str) -> Row:
    random = np.random.default_rng(1)
    environment = environments.make(game, num_envs=NUM_ENVS, seed=1)
    raw = raw_loop(game, NUM_ENVS, lambda: random.integers(MOST_NO_OPS + 1))
    actions = random.integers(environment.num_actions, size=(STEPS, NUM_ENVS), dtype=np.int32)
    environment.reset()
    raw(actions[0])

    def play(step: Callable[[np.ndarray], object]) -> None:
        for of_all in actions:
            step(of_all)

    measured = times(lambda: play(environment.step), lambda: play(raw))
    environment.close()
    return row(
        f"environment step, {game}, {NUM_ENVS} at once",
        "a loop over raw ALE with pixels",
        *measured,
        unit="cpu-ms per step",
        per_call=STEPS * NUM_ENVS,
        at_most=1.25,
    )


def main() -> None:
    for game in GAMES:
        check(game)
        publish(measure(game))


if __name__ == "__main__":
    main()
