"""Names and the rules of each family, against the emulators themselves."""

import sys

import ale_py
import gymnasium
import numpy as np
import pytest

from rbs_tf import environments, scores
from rbs_tf.environments import atari, names


def seed_of_first(seed: int) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1


def test_an_environment_in_place_of_its_name_is_refused_with_what_to_write():
    for given in (gymnasium.make("CartPole-v1"), gymnasium.Env, None):
        with pytest.raises(
            ValueError,
            match=r"takes an environment's name.*gymnasium.register\('Mine-v0', entry_point=Mine\)",
        ):
            environments.make(given)


def test_games_play_in_colour_with_all_the_actions_they_take():
    for game, count in (("skiing", 9), ("breakout", 18)):  # ALE calls no more than 9 legal in Skiing
        with environments.make(game, seed=1) as env:
            assert (env.name, env.game, env.num_actions) == (game, game, count)
            observation = env.reset().observation
            assert observation.shape == (1, 210, 160, 3) and observation.dtype == np.uint8
            assert env.step(np.array([count - 1])).step_type == 1


def test_names_and_settings_choose_the_rules():
    for name, actions in (("pong", 6), ("breakout", 4), ("MinAtar/SpaceInvaders-v1", 4)):
        assert environments.make(name, full_action_set=False).num_actions == actions

    def observations(name, **settings):
        env = environments.make(name, seed=0, **settings)
        assert (env.name, env.game) == ("breakout", "breakout")
        env.reset()
        return np.stack([env.step(np.array([1 + step % 4])).observation for step in range(20)])

    plain, sticky = (observations("breakout", repeat_action_probability=p) for p in (None, 0.9))
    np.testing.assert_array_equal(plain, observations("ALE/Breakout-v5", repeat_action_probability=0.0))
    assert not np.array_equal(plain, sticky)


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
    vector_env = atari.vector_environment("pong", 8, True, None, 0.0)
    vector_env.reset(seed=list(range(8)))
    frames = np.concatenate([vector_env.reset()[1]["episode_frame_number"] for _ in range(6)])
    # ALE starts counting at 1 or later, game by game
    assert 25 < np.ptp(frames) <= 30 and len(np.unique(frames)) > 15


def test_frames_are_stacked_with_the_oldest_first_and_without_any_of_the_last_episode():
    """And a time-out keeps its discount."""
    env = environments.make(
        "pong", 2, seed=0, img_height=84, img_width=60, grayscale=True, stack_num=3, max_episode_steps=20
    )
    spec = env.observation_spec()
    assert (spec.shape, spec.dtype) == ((84, 60, 3), np.uint8)
    rows = [env.reset(), *(env.step(np.full(2, 2 + step % 2)) for step in range(42))]
    np.testing.assert_array_equal([row.step_type[0] for row in rows], [0, *[1] * 19, 2] * 2 + [0])
    assert all((row.discount == 1).all() for row in rows)
    moved = 0
    for before, after in zip(rows, rows[1:], strict=False):
        if after.is_first().all():
            assert before.observation[..., :2].any()
            assert not after.observation[..., :2].any() and after.observation[..., 2].any()
        else:
            np.testing.assert_array_equal(after.observation[..., :2], before.observation[..., 1:])
            moved += not np.array_equal(after.observation[..., 2], after.observation[..., 1])
    assert moved > 20


def idle_breakout(**options):
    """Points, discount, lives and kind of each step of two episodes in which nobody moves."""
    env = environments.make("breakout", seed=1, full_action_set=False, max_episode_steps=600, **options)
    time_step, ended, rows = env.reset(), 0, []
    while ended < 2:
        time_step = env.step(np.zeros(1, np.int32))
        lives = env.vector_env._lives[0]
        rows.append((time_step.reward[0], time_step.discount[0], lives, time_step.step_type[0]))
        ended += time_step.is_last()[0]
    return np.array(rows)


def test_a_lost_life_ends_no_episode_and_breakout_waits_for_ever_unless_fire_is_pressed_on_a_new_one():
    waits = idle_breakout()
    assert len(waits) == 1201 and set(waits[:, 2]) == {5}  # two time-outs and the step between them
    for terminal in (False, True):
        rows = idle_breakout(fire_on_new_life=True, terminal_on_life_loss=terminal)
        assert len(rows) < 1000, "five balls that nobody catches take less"
        assert set(rows[:, 2]) == {0, 1, 2, 3, 4, 5} and (rows[:, 3] == 2).sum() == 2
        lost = np.flatnonzero(np.diff(rows[:, 2]) < 0) + 1
        over = lost if terminal else np.flatnonzero(rows[:, 3] == 2)
        np.testing.assert_array_equal(np.flatnonzero(rows[:, 1] == 0), over)
        assert len(lost) == 10


@pytest.mark.parametrize("name", ["minatar/breakout", "minatar/seaquest"])
def test_minatar_is_the_game_itself_as_uint8(name):
    minatar = pytest.importorskip("minatar")
    env = environments.make(name, seed=9)
    assert (env.name, env.game, env.num_actions) == (name, None, 6)
    game = minatar.Environment(name.removeprefix("minatar/"))
    game.seed(seed_of_first(9))
    game.reset()
    np.testing.assert_array_equal(env.reset().observation[0], game.state())
    over = False
    for action in np.random.default_rng(0).integers(6, size=150):
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
        with pytest.raises(ValueError, match="did you mean 'my_own_games:MyCartPole-v0' or"):
            environments.make("my_own_games:MyCarPole-v0")
    finally:
        gymnasium.registry.pop("MyCartPole-v0", None)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pongg", "pong"),
        ("Space-Invaders", "space_invaders"),
        ("CartPole", "CartPole-v1"),
        ("ALE/Pong-v4", "pong"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_ones(typed, meant):
    with pytest.raises(ValueError, match=f"unknown environment '{typed}'.*'{meant}'") as error:
        environments.make(typed)
    assert "--list_envs" in str(error.value)


def test_what_makes_no_sense_is_refused_by_name(monkeypatch):
    cartpole, pong = "CartPole-v1", "pong"
    for name, argument, value in (
        (cartpole, "num_envs", 0),
        (cartpole, "repeat_action_probability", 0.25),  # it has no such thing
        (cartpole, "stack_num", 1),
        ("minatar/breakout", "terminal_on_life_loss", False),
        (pong, "img_height", 0),
        (pong, "random_steps", 3),
    ):
        with pytest.raises(ValueError, match=argument):
            environments.make(name, **{argument: value})
    with pytest.raises(ValueError, match="'qqqqqqqqqqqqqqqq'\nExpected an Atari game"):
        environments.make("qqqqqqqqqqqqqqqq")
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[minatar\]"'):
        environments.make("minatar/breakout")


def test_older_ids_of_atari_name_the_plain_name(caplog):
    for name in ("PongNoFrameskip-v4", "Pong-v4", "ale_py:Pong-v4"):
        for option in ({"img_height": 84, "stack_num": 2}, {"repeat_action_probability": 0.25}):
            with pytest.raises(ValueError, match=f"not for '{name}'; take 'pong', the same game") as error:
                environments.make(name, **option)
            assert "leave" not in str(error.value)
    assert not caplog.messages
    for _ in range(2):
        environments.make("PongNoFrameskip-v4").close()
    (said,) = caplog.messages
    assert "PongNoFrameskip-v4 plays 'pong' by other rules" in said and "--env=pong" in said
    environments.make("pong").close()
    assert len(caplog.messages) == 1


def test_the_list_of_names_holds_every_game():
    listed = environments.list_environments()
    assert [len(group) for group in listed.values()][:2] == [57, 5] and set(scores.GAMES) <= names.ATARI_GAMES


def test_episodes_begin_behind_random_steps_which_repeat_with_the_seed():
    def starts(seed, random_steps, episodes=12):
        env = environments.make("CliffWalking-v1", 2, seed, random_steps=random_steps)
        return [env.reset().observation.argmax(axis=1).tolist() for _ in range(episodes)]

    assert starts(0, 0) == [[36, 36]] * 12, "it has one start"
    random = starts(0, 5)
    assert len({tuple(pair) for pair in random}) > 3 and random == starts(0, 5) != starts(1, 5)
    assert {row for pair in random for row in pair} <= set(range(48))


def test_an_episode_that_ends_within_its_random_steps_begins_again():
    env = environments.make("CartPole-v1", 1, 0, max_episode_steps=3, random_steps=50)
    for _ in range(20):
        assert env.reset().is_first().all()
        assert env.step(np.zeros(1, np.int32)).step_type.tolist() in ([1], [2])
