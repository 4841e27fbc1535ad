"""Names and the rules of each family, against the emulators themselves."""

import os
import subprocess
import sys

import ale_py
import gin
import gymnasium
import numpy as np
import pytest

from rbs_tf import environments, scores
from rbs_tf.environments import factory, names


def seed_of_first(seed: int) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1


@pytest.mark.parametrize("game", scores.GAMES)
def test_every_game_plays_in_colour_with_all_the_actions_it_takes(game):
    count = 9 if game == "skiing" else 18  # ALE calls no more than these legal in it
    with environments.make(game, seed=1) as env:
        assert (env.name, env.game, env.num_actions) == (game, game, count)
        time_step = env.reset()
        assert (time_step.observation.shape, time_step.observation.dtype) == ((1, 210, 160, 3), np.uint8)
        assert env.step(np.array([count - 1])).step_type == 1


def test_the_minimal_action_set_is_one_switch():
    assert environments.make("pong", full_action_set=False).num_actions == 6
    assert environments.make("breakout", full_action_set=False).num_actions == 4


def test_an_ale_id_means_the_same_as_the_plain_name():
    env = environments.make("ALE/SpaceInvaders-v5", seed=4)
    same = environments.make("space_invaders", seed=4)
    assert (env.name, env.game) == ("space_invaders", "space_invaders")
    np.testing.assert_array_equal(env.reset().observation, same.reset().observation)
    np.testing.assert_array_equal(env.step(np.array([3])).observation, same.step(np.array([3])).observation)


def test_frames_are_the_maximum_of_two_rewards_are_points_and_nothing_is_pressed_at_the_start():
    # The emulator itself, with each possible number of no-ops: exactly one of the 31 histories is that of the
    # environment. Space Invaders draws its shots in every other frame only and gives 5 points and more.
    steps, actions = 60, np.random.default_rng(2).integers(18, size=60)
    env = environments.make("space_invaders", seed=2)
    rows = [env.reset()] + [env.step(actions[t : t + 1]) for t in range(steps)]

    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", seed_of_first(2))
    ale.loadROM(ale_py.roms.get_rom_path("space_invaders"))

    def history(no_ops):
        ale.reset_game()
        for _ in range(no_ops):
            ale.act(ale_py.Action.NOOP)
        observations, last_frames, rewards = [ale.getScreenRGB()], [ale.getScreenRGB()], [0]
        for action in actions:
            reward, frames = 0, []
            for _ in range(4):
                reward += ale.act(ale.getLegalActionSet()[action])
                frames.append(ale.getScreenRGB())
            observations.append(np.maximum(frames[2], frames[3]))
            last_frames.append(frames[3])
            rewards.append(reward)
        return np.stack(observations), np.stack(last_frames), np.array(rewards)

    seen = np.stack([row.observation[0] for row in rows])
    rewards = np.array([row.reward[0] for row in rows])
    histories = [history(no_ops) for no_ops in range(31)]
    matches = [i for i, (observations, _, _) in enumerate(histories) if np.array_equal(observations, seen)]
    assert len(matches) == 1
    _, last_frames, points = histories[matches[0]]
    np.testing.assert_array_equal(rewards, points)
    assert rewards.max() >= 5
    assert not np.array_equal(last_frames, seen), "a maximum that changes nothing proves nothing"


def test_episodes_start_with_0_to_30_no_ops():
    vector_env = factory._atari("pong", 16, True, None, 0.0)
    vector_env.reset(seed=list(range(16)))
    frames = np.concatenate([vector_env.reset()[1]["episode_frame_number"] for _ in range(20)])
    # ALE starts counting at 1 or later, game by game
    assert frames.max() - frames.min() == 30
    assert len(np.unique(frames)) == 31


def test_losing_a_life_ends_no_episode_and_losing_the_last_does():
    vector_env = factory._atari("breakout", 1, True, None, 0.0)
    _, info = vector_env.reset(seed=[0])
    lives, terminated = [int(info["lives"][0])], False
    while not terminated:
        _, _, (terminated,), (truncated,), info = vector_env.step(
            np.array([1])
        )  # FIRE, and no move to the ball
        assert not truncated
        lives.append(int(info["lives"][0]))
    assert sorted(set(lives), reverse=True) == [5, 4, 3, 2, 1, 0]
    assert lives[-2] > 0


def test_a_lost_pong_match_is_terminal():
    env = environments.make("pong", seed=0)
    rows = [env.reset()]
    while not rows[-1].is_last().all():
        rows.append(env.step(np.zeros(1, np.int32)))
    assert sum(float(row.reward[0]) for row in rows) == -21
    assert float(rows[-1].discount[0]) == 0
    following = env.step(np.zeros(1, np.int32))
    assert (following.is_first().all(), float(following.reward[0]), float(following.discount[0])) == (
        True,
        0,
        1,
    )


def test_an_atari_time_out_comes_after_that_many_steps_and_keeps_its_discount():
    env = environments.make("pong", 2, seed=0, max_episode_steps=5)
    rows = [env.reset()] + [env.step(np.zeros(2, np.int32)) for _ in range(6)]
    np.testing.assert_array_equal([row.step_type[0] for row in rows], [0, 1, 1, 1, 1, 2, 0])
    assert all((row.discount == 1).all() for row in rows)


def test_atari_times_out_after_27000_steps_by_default():
    assert factory.ATARI_TIME_OUT_FRAMES == 27_000 * factory.FRAMES_PER_STEP


def test_sticky_actions_only_on_request():
    def observations(probability):
        env = environments.make("breakout", seed=0, repeat_action_probability=probability)
        env.reset()
        return np.stack([env.step(np.array([1 + step % 4])).observation for step in range(40)])

    np.testing.assert_array_equal(observations(None), observations(0.0))
    assert not np.array_equal(observations(0.0), observations(0.9))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads the Linux way")
def test_closing_ends_the_emulators_threads():
    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()
    env = environments.make("pong", 4, seed=0)
    env.reset()
    assert threads() > before
    env.close()
    env.close()
    assert threads() == before


@pytest.mark.parametrize("name", names.MINATAR_GAMES)
def test_minatar_is_the_game_itself_as_uint8(name):
    minatar = pytest.importorskip("minatar")
    env = environments.make(name, seed=9)
    assert (env.name, env.game, env.num_actions) == (name, None, 6)
    game = minatar.Environment(name.removeprefix("minatar/"))
    game.seed(seed_of_first(9))
    game.reset()
    np.testing.assert_array_equal(env.reset().observation[0], game.state())
    over = False
    for action in np.random.default_rng(0).integers(6, size=300):
        time_step = env.step(np.array([action]))
        reward = 0
        if over:
            game.reset()
            over = False
        else:
            reward, over = game.act(action)
        assert time_step.observation.dtype == np.uint8
        np.testing.assert_array_equal(time_step.observation[0], game.state())
        assert (time_step.reward[0], time_step.discount[0]) == (reward, 0 if over else 1)
        assert time_step.is_last()[0] == over


def test_minatars_own_settings_are_within_reach():
    pytest.importorskip("minatar")
    assert environments.make("minatar/space_invaders", full_action_set=False).num_actions == 4
    assert environments.make("MinAtar/SpaceInvaders-v1").num_actions == 4
    assert (
        environments.make("minatar/breakout", max_episode_steps=2, repeat_action_probability=0.0).batch_size
        == 1
    )


def test_minatar_is_an_option_and_its_absence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar", None)
    for name in ("minatar/breakout", "MinAtar/Breakout-v1"):
        with pytest.raises(ImportError, match=r'pip install "rbs-tf\[minatar\]"'):
            environments.make(name)


def test_a_module_can_register_the_environment_as_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "my_own_games.py").write_text(
        "import gymnasium\n"
        "entry_point = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gymnasium.register('MyCartPole-v0', entry_point, max_episode_steps=3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = environments.make("my_own_games:MyCartPole-v0", 2, seed=0)
        assert (env.name, env.game) == ("my_own_games:MyCartPole-v0", None)
        env.reset()
        assert [int(env.step(np.zeros(2, np.int32)).step_type[0]) for _ in range(3)] == [1, 1, 2]
    finally:
        gymnasium.registry.pop("MyCartPole-v0", None)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pongg", "pong"),
        ("Space-Invaders", "space_invaders"),
        ("MsPacman", "ms_pacman"),
        ("CartPole", "CartPole-v1"),
        ("minatar/breakot", "minatar/breakout"),
        ("ALE/Pong-v4", "pong"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_ones(typed, meant):
    with pytest.raises(ValueError, match=f"unknown environment '{typed}'.*'{meant}'") as error:
        environments.make(typed)
    assert "--list_envs" in str(error.value)


def test_a_name_like_no_other_is_answered_with_examples():
    with pytest.raises(ValueError, match="'qqqqqqqqqqqqqqqq'\nExpected an Atari game"):
        environments.make("qqqqqqqqqqqqqqqq")


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_envs": 0},
        {"reward_multiplier": float("nan")},
        {"max_episode_steps": 0},
        {"repeat_action_probability": 1.5},
        {"repeat_action_probability": 0.25},  # CartPole has no such thing
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(wrong):
    (argument,) = wrong
    with pytest.raises(ValueError, match=argument):
        environments.make("CartPole-v1", **wrong)


def test_gin_can_bind_everything():
    try:
        gin.parse_config(["environments.make.name = 'CartPole-v1'", "environments.make.num_envs = 3"])
        env = environments.make()
        assert (env.name, env.batch_size) == ("CartPole-v1", 3)
    finally:
        gin.clear_config()


def test_the_list_of_names_holds_every_game_and_needs_no_tensorflow():
    listed = environments.list_environments()
    assert [len(group) for group in listed.values()] == [57, 5, 1]
    assert set(scores.GAMES) <= names.ATARI_GAMES
    code = (
        "import sys, rbs_tf.environments as e; e.list_environments(); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
