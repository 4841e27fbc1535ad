"""Names and the rules of each family, against the emulators themselves."""

import importlib.util
import os
import subprocess
import sys

import ale_py
import gin
import gymnasium
import numpy as np
import pytest

from rbs_tf import environments, scores
from rbs_tf.environments import atari, names

needs_bsuite = pytest.mark.skipif(not importlib.util.find_spec("bsuite"), reason="bsuite is not installed")


def seed_of_first(seed: int) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1


def test_every_game_plays_in_colour_with_all_the_actions_it_takes():
    for game in scores.GAMES:
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
    vector_env = atari.vector_environment("pong", 16, True, None, 0.0)
    vector_env.reset(seed=list(range(16)))
    frames = np.concatenate([vector_env.reset()[1]["episode_frame_number"] for _ in range(20)])
    # ALE starts counting at 1 or later, game by game
    assert frames.max() - frames.min() == 30
    assert len(np.unique(frames)) == 31


def test_losing_a_life_ends_no_episode_and_losing_the_last_does():
    vector_env = atari.vector_environment("breakout", 1, True, None, 0.0)
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


def test_atari_times_out_after_27000_steps_by_default(monkeypatch):
    assert atari.LONGEST_EPISODE == 27_000
    monkeypatch.setattr(atari, "LONGEST_EPISODE", 3)
    env = environments.make("pong", 1, seed=0)
    rows = [env.reset()] + [env.step(np.zeros(1, np.int32)) for _ in range(3)]
    assert [int(row.step_type[0]) for row in rows] == [0, 1, 1, 2]


def test_sticky_actions_only_on_request():
    def observations(probability):
        env = environments.make("breakout", seed=0, repeat_action_probability=probability)
        env.reset()
        return np.stack([env.step(np.array([1 + step % 4])).observation for step in range(40)])

    np.testing.assert_array_equal(observations(None), observations(0.0))
    assert not np.array_equal(observations(0.0), observations(0.9))


SMALL = dict(img_height=84, img_width=60, grayscale=True, stack_num=3, max_episode_steps=20)


def test_small_frames_are_one_image_with_the_oldest_frame_first():
    env = environments.make("pong", 2, seed=0, **SMALL)
    spec = env.observation_spec()
    assert (spec.shape, spec.dtype) == ((84, 60, 3), np.uint8)
    rows = [env.reset().observation] + [env.step(np.full(2, 2 + i % 2)).observation for i in range(10)]
    for before, after in zip(rows, rows[1:], strict=False):
        np.testing.assert_array_equal(after[..., :2], before[..., 1:])
    moved = [not np.array_equal(row[..., 2], row[..., 1]) for row in rows]
    assert sum(moved) > 5


def test_small_frames_are_those_of_the_emulator_resized():
    raw, small = (
        environments.make("breakout", seed=3, **sizes)
        for sizes in ({}, dict(img_height=84, img_width=84, grayscale=True, stack_num=1))
    )
    colors = raw.reset().observation[0].astype(float)
    grey = colors @ [0.299, 0.587, 0.114]  # luma, as ALE's own palette of greys

    # Each of 84 x 84 pixels is the mean of the area that it covers.
    def weights(fine, coarse):
        edges = np.linspace(0, fine, coarse + 1)
        starts, ends = edges[:-1, None], edges[1:, None]
        covered = np.minimum(ends, np.arange(fine) + 1) - np.maximum(starts, np.arange(fine))
        return np.maximum(covered, 0.0) / (fine / coarse)

    expected = weights(210, 84) @ grey @ weights(160, 84).T
    difference = np.abs(small.reset().observation[0, ..., 0] - expected)
    assert difference.max() <= 3 and expected.max() > 100


def test_an_episode_starts_without_any_frame_of_the_last_one():
    env = environments.make("pong", 2, seed=0, **SMALL)
    time_step = env.reset()
    assert not time_step.observation[..., :2].any() and time_step.observation[..., 2].any()
    while not time_step.is_last().all():
        time_step = env.step(np.zeros(2, np.int32))
    assert time_step.observation[..., :2].any()
    time_step = env.step(np.zeros(2, np.int32))
    assert time_step.is_first().all()
    assert not time_step.observation[..., :2].any() and time_step.observation[..., 2].any()


def test_frames_in_colour_are_stacked_along_the_channels():
    env = environments.make("pong", seed=0, stack_num=2)
    first, second = env.reset().observation[0], env.step(np.zeros(1, np.int32)).observation[0]
    assert first.shape == (210, 160, 6)
    np.testing.assert_array_equal(second[..., :3], first[..., 3:])
    np.testing.assert_array_equal(first[..., 3:], environments.make("pong", seed=0).reset().observation[0])


def breakout(policy, episodes=2, **options):
    """Number of steps, points, discounts and lives of whole episodes."""
    env = environments.make("breakout", seed=1, full_action_set=False, max_episode_steps=600, **options)
    time_step, ended, rows = env.reset(), 0, []
    while ended < episodes:
        time_step = env.step(np.array([policy(len(rows))], np.int32))
        lives = int(env._vector_env._lives[0])
        rows.append(
            (float(time_step.reward[0]), float(time_step.discount[0]), lives, int(time_step.step_type[0]))
        )
        ended += int(time_step.is_last()[0])
    return np.array(rows)


def test_breakout_waits_for_ever_unless_fire_is_pressed_on_a_new_life():
    waits = breakout(lambda step: 0)
    assert len(waits) == 1201 and set(waits[:, 2]) == {5}  # two time-outs and the step between them
    serves = breakout(lambda step: 0, fire_on_new_life=True)
    assert len(serves) < 1000, "five balls that nobody catches take less"
    assert set(serves[:, 2]) == {0, 1, 2, 3, 4, 5}
    assert set(serves[serves[:, 3] != 2][:, 1]) == {1}


def test_fire_replaces_one_action_at_a_start_and_after_a_loss_and_none_elsewhere():
    env = environments.make("breakout", seed=1, full_action_set=False, fire_on_new_life=True)
    sent = []
    step = env._vector_env.env.step
    env._vector_env.env.step = lambda actions: (sent.append(int(actions[0])), step(actions))[1]
    env.reset()
    lives = [5]
    while lives[-1] > 2:
        env.step(np.array([2], np.int32))
        lives.append(int(env._vector_env._lives[0]))
    lost = [index for index in range(1, len(lives)) if lives[index] < lives[index - 1]]
    assert [index for index, action in enumerate(sent) if action == 1] == [0, *lost[:-1]]
    assert {action for action in sent} == {1, 2}


def test_games_without_fire_are_left_alone():
    env = environments.make("freeway", seed=0, full_action_set=False, fire_on_new_life=True)
    same = environments.make("freeway", seed=0, full_action_set=False)
    env.reset(), same.reset()
    for _ in range(20):
        up, up_too = (e.step(np.ones(1, np.int32)) for e in (env, same))
    np.testing.assert_array_equal(up.observation, up_too.observation)


def test_a_lost_life_can_be_terminal_without_ending_the_episode():
    rows = breakout(lambda step: 0, fire_on_new_life=True, terminal_on_life_loss=True)
    ends = np.flatnonzero(rows[:, 1] == 0)
    assert len(ends) == 10 and (rows[ends, 3] == 2).sum() == 2  # five lives, two episodes
    assert all(rows[index, 2] < rows[index - 1, 2] for index in ends)


def test_frames_that_cannot_be_are_refused_in_a_sentence():
    for options, words in (
        (dict(img_height=0), "img_height=0: expected a whole number of at least 1"),
        (dict(img_width=-3), "img_width=-3"),
        (dict(stack_num=0), "stack_num=0"),
        (dict(img_width=84.0), "img_width=84.0"),
        (dict(stack_num=True), "stack_num=True"),
        (dict(grayscale="yes"), "grayscale='yes': expected True, False or None"),
        (dict(fire_on_new_life=1), "fire_on_new_life=1"),
    ):
        with pytest.raises(ValueError, match=words):
            environments.make("pong", **options)


def test_what_only_atari_has_is_refused_elsewhere():
    for name in ("minatar/breakout", "CartPole-v1"):
        with pytest.raises(ValueError, match=f"stack_num, terminal_on_life_loss: .*Atari.*{name}.* is not"):
            environments.make(name, stack_num=1, terminal_on_life_loss=False)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads the Linux way")
def test_closing_ends_the_emulators_threads():
    def threads():
        return set(os.listdir("/proc/self/task"))

    before = threads()
    env = environments.make("pong", 4, seed=0)
    env.reset()
    assert threads() - before
    env.close()
    env.close()
    assert not threads() - before


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


@pytest.mark.parametrize(
    ("package", "name", "command"),
    [
        ("minatar", "minatar/breakout", r'pip install "rbs-tf\[minatar\]"'),
        ("minatar", "MinAtar/Breakout-v1", r'pip install "rbs-tf\[minatar\]"'),
        ("bsuite", "bsuite/catch/0", r'pip install "rbs-tf\[bsuite\]"'),
        ("popgym", "popgym-RepeatPreviousEasy-v0", "pip install popgym"),
    ],
)
def test_what_is_not_installed_says_how_to_get_it(monkeypatch, package, name, command):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=command):
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
        pytest.param("bsuite/cach/0", "bsuite/catch/0", marks=needs_bsuite),
        pytest.param("catch/0", "bsuite/catch/0", marks=needs_bsuite),
        pytest.param("bsuite/catch/99", "bsuite/catch/9", marks=needs_bsuite),
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


BSUITE = 'bsuite (pip install "rbs-tf[bsuite]")'


def test_bsuite_is_listed_by_experiment(monkeypatch):
    sweep = pytest.importorskip("bsuite.sweep")
    listed = environments.list_environments()[BSUITE]
    assert "bsuite/catch/0..19" in listed and "bsuite/memory_len/0..22" in listed
    spelt = (part.rpartition("/") for part in listed)
    every = {f"{name}/{i}" for name, _, last in spelt for i in range(int(last.removeprefix("0..")) + 1)}
    assert every == {f"bsuite/{bsuite_id}" for bsuite_id in sweep.SWEEP}
    monkeypatch.setitem(sys.modules, "bsuite", None)
    assert environments.list_environments()[BSUITE] == ("bsuite/catch/0 and the rest of its sweep",)


def test_the_list_of_names_holds_every_game_and_needs_no_tensorflow():
    listed = environments.list_environments()
    assert [len(group) for group in listed.values()] == [57, 5, len(listed[BSUITE]), 1, 1]
    assert set(scores.GAMES) <= names.ATARI_GAMES
    code = (
        "import sys, rbs_tf.environments as e; e.list_environments(); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
