"""What a run has learned, played and exported: a small run, and an Atari agent that has learned nothing."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import gin
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from agents.__main__ import main
from agents.commands import loading as trained_module
from agents.commands import pictures, play, video
from agents.commands.loading import load
from agents.running.embedded import EmbeddedRun
from agents.storage.best import Best
from agents.storage.run_folder import REPOSITORY
from agents.workers.parts import Training
from rbs_tf import environments
from tests.agents.running.test_embedded import configured

# Outputs in units of their own, rewards times a quarter (the network clips what it is told of them at 1), a clipped
# head and one that is not.
BINDINGS = (
    'include "configs/scaling/return_out.gin"',
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "train.updates = 30",
    "train.eval_interval = 5",
    "environments.make.max_episode_steps = 60",
    "environments.make.reward_multiplier = 0.25",
)
NAMES = ("clipped_0.9", "unclipped_0.99")
CARTPOLE = ("train.env = 'CartPole-v1'", "RecurrentQNetwork.torso = @networks.MlpTorso")
# Small grey frames in stacks of two, and all that draws random numbers.
ATARI = (
    "train.env = 'breakout'",
    "environments.make.img_height = 84",
    "environments.make.img_width = 84",
    "environments.make.grayscale = True",
    "environments.make.stack_num = 2",
    "environments.make.full_action_set = False",
    "environments.make.repeat_action_probability = 0.25",
    "environments.make.fire_on_new_life = True",
    "environments.make.terminal_on_life_loss = True",
    "environments.make.max_episode_steps = 80",
    "environments.make.reward_multiplier = 0.25",
    "RecurrentQNetwork.torso = @networks.ConvTorso",
    "ConvTorso.channels = (4,)",
    "ConvTorso.kernel_sizes = (8,)",
    "ConvTorso.strides = (8,)",
    "ConvTorso.units = 16",
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "RecurrentMultiHeadAgent.evaluation_epsilon = 0.05",
    "train.updates = 1",
)


def write_slim_run(folder, *bindings):
    """A run folder with nothing but what playing needs: a configuration, and the weights of an untrained agent."""
    folder.mkdir(parents=True)
    with configured(*bindings):
        (folder / "config.gin").write_text(gin.config_str())
        environment = Training().environment(1)
        agent = Training().agent(environment)
        assert Best(folder).offer(7, np.array([1.0, 2.0]), agent.acting_variables)
        environment.close()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run, and what was offered as best and is newest: (update, mean return, weights)."""
    root = tmp_path_factory.mktemp("run")
    offered = []
    with configured(*BINDINGS):
        (root / "config.gin").write_text(gin.config_str())
        with EmbeddedRun(root) as embedded:
            offer = embedded.evaluations.best.offer

            def noted(update, returns, variables):
                offered.append((update, np.mean(returns), [v.numpy() for v in variables]))
                return offer(update, returns, variables)

            embedded.evaluations.best.offer = noted
            embedded.run()
            newest = [variable.numpy() for variable in embedded.agent.network.variables]
    assert [update for update, *_ in offered] == [5, 10, 15, 20, 25, 30]
    return SimpleNamespace(root=root, offered=offered, newest=newest)


@pytest.fixture(scope="module")
def atari(tmp_path_factory):
    """The folder of pretrained agents, with one in it."""
    root = tmp_path_factory.mktemp("pretrained")
    write_slim_run(root / "small_breakout", *ATARI)
    sums = subprocess.run("sha256sum */*", shell=True, cwd=root, capture_output=True, text=True, check=True)
    (root / "SHA256SUMS").write_text(sums.stdout)
    return root


@pytest.fixture(autouse=True)
def own_configuration():
    """`load` leaves a run's configuration behind, which would reach the next test's environments."""
    yield
    gin.clear_config()


@pytest.fixture
def trained(run):
    trained = load(run.root)
    yield trained
    trained.environment.close()


def refusal(capsys, *argv):
    assert main(["play", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("python -m agents play: ") and "Traceback" not in err
    return err


def test_the_best_weights_are_those_of_the_highest_evaluation(run, trained):
    update, mean, weights = max(run.offered, key=lambda of: of[1])
    assert trained.update == update
    assert f"Best evaluation so far: {mean:.4g} per episode in 2 episodes" in trained.origin
    for variable, values in zip(trained.agent.acting_variables, weights, strict=True):
        if variable is not trained.agent.policy.head_probabilities:
            np.testing.assert_array_equal(variable, values)
        else:
            assert trained.head == np.argmax(values)
            np.testing.assert_array_equal(variable, np.eye(2)[trained.head])


def test_the_latest_weights_are_those_of_the_newest_checkpoint(run):
    trained = load(run.root, "latest", head="0")
    trained.environment.close()
    assert trained.update == 30 and trained.head == 0
    for variable, values in zip(trained.agent.network.variables, run.newest, strict=True):
        np.testing.assert_array_equal(variable, values)


def test_a_run_that_has_kept_no_best_is_played_with_its_newest_checkpoint(run, tmp_path):
    shutil.copytree(run.root, tmp_path / "run")
    (tmp_path / "run" / "best.npz").unlink()
    trained = load(tmp_path / "run", head="unclipped_0.99")
    trained.environment.close()
    assert trained.origin == (
        "The run has kept no best weights. Newest checkpoint: update 30. "
        "Acting: head unclipped_0.99, as asked for."
    )


@pytest.mark.parametrize("head", [0, 1])
def test_the_chosen_head_acts_greedily_and_all_values_are_in_units_of_their_rewards(run, head):
    trained = load(run.root, head=str(head), seed=3)
    played = list(play.moments(trained, 1))
    trained.environment.close()
    assert played[-1].ended and played[-1].action is None and played[0].reward == 0.0
    assert played[-1].episode_return == sum(moment.reward for moment in played)
    # The whole episode at once, from the beginning: what each step's state and previous action must have been.
    acted = played[:-1]
    actions = np.array([[-1, *(moment.action for moment in acted[:-1])]], np.int32)
    rewards = np.array([[0.25 * moment.reward for moment in acted]], np.float32)
    observations = np.array([[moment.observation for moment in acted]])
    step_type = np.array([[0, *[1] * (len(acted) - 1)]], np.int32)
    outputs, _ = trained.agent.network((observations, actions, rewards), step_type, ())
    assert [moment.action for moment in acted] == np.argmax(outputs[0, :, head], axis=-1).tolist()
    values = (
        trained.agent.scaling.online.scale * tf.cast(tf.reduce_max(outputs[0], -1), tf.float64) / [1, 0.25]
    )
    np.testing.assert_allclose([moment.values for moment in acted], values, rtol=1e-4, atol=1e-5)


def episodes_of(trained, episodes, **options):
    """The moments of each episode, by its number; closes the environment."""
    played = {number: [] for number in range(1, episodes + 1)}
    for moment in play.moments(trained, episodes, **options):
        played[moment.episode].append(moment)
    trained.environment.close()
    for moments in played.values():
        assert [moment.step for moment in moments] == list(range(len(moments)))
        assert [moment.ended for moment in moments] == [False] * (len(moments) - 1) + [True]
        assert moments[-1].episode_return == sum(moment.reward for moment in moments)
    return played


def test_every_environment_plays_episodes_of_its_own_whoever_is_done_first(tmp_path):
    untrained = write_slim_run(tmp_path / "run", *BINDINGS, *CARTPOLE)
    side_by_side = episodes_of(load(untrained, num_envs=2), 5)
    lengths = [len(moments) for moments in side_by_side.values()]
    assert lengths[0] != lengths[1]
    alone = episodes_of(load(untrained), 3)  # the same as the first of the two
    for number, moments in alone.items():
        twins = side_by_side[2 * number - 1]
        assert [moment.action for moment in moments] == [moment.action for moment in twins]
        assert [moment.reward for moment in moments] == [moment.reward for moment in twins]
        np.testing.assert_allclose([m.values for m in moments], [m.values for m in twins], rtol=1e-3)


def test_side_by_side_no_episode_is_lost_to_a_cut(run):
    played = episodes_of(load(run.root, num_envs=3), 7, max_steps=12)
    assert max(len(moments) for moments in played.values()) == 13
    for moments in played.values():
        assert moments[-1].cut == (len(moments) == 13) and moments[-1].action is None
    again = episodes_of(load(run.root, num_envs=3), 7, max_steps=12)
    for number, moments in played.items():
        assert [moment.action for moment in moments] == [moment.action for moment in again[number]]


def test_playing_prints_every_return_and_their_mean_and_leaves_the_folder_as_it_was(run, capsys, monkeypatch):
    monkeypatch.setattr(play, "SIDE_BY_SIDE", 2)

    def contents():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.root.rglob("*")}

    before = contents()
    assert main(["play", str(run.root), "--episodes=3", "--max_steps=12", "--seed=1"]) == 0
    first, *episodes, last = capsys.readouterr().out.splitlines()
    assert first.startswith("minatar/space_invaders. Best evaluation so far: ")
    returns = [float(line.split("return ")[1].split(",")[0]) for line in episodes]
    assert [line.split(":")[0] for line in episodes] == ["episode 1", "episode 2", "episode 3"]
    assert any("12 steps, cut there" in line for line in episodes)
    assert float(last.split("mean return ")[1].split(",")[0]) == pytest.approx(np.mean(returns), rel=1e-5)
    assert contents() == before
    assert main(["play", str(run.root), "--episodes=3", "--max_steps=12", "--seed=1"]) == 0
    assert capsys.readouterr().out.splitlines() == [first, *episodes, last]


def test_the_interval_is_students():
    # Standard error 1, and 12.706 is the quantile of one degree of freedom.
    assert play.interval([1.0, 3.0]) == pytest.approx((2 - 12.706, 2 + 12.706), abs=1e-3)


def test_a_video_has_a_frame_per_moment(run, tmp_path, capsys):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    arguments = [str(run.root), "--episodes=2", "--max_steps=8"]
    assert main(["play", *arguments, f"--video={tmp_path}/out.mp4"]) == 0
    assert "out.mp4, 18 frames, " in capsys.readouterr().out
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "out.mp4"))
    meta = next(imageio_ffmpeg.read_frames(str(tmp_path / "out.mp4")))
    assert frames == 18 and meta["pix_fmt"].startswith("yuv420p")
    assert [side % 2 for side in meta["size"]] == [0, 0]
    assert main(["play", *arguments, f"--video={tmp_path}/out.gif"]) == 0
    with Image.open(tmp_path / "out.gif") as film:
        assert (film.n_frames, film.size) == (18, meta["size"])


def test_a_film_shows_one_episode_after_the_other(run, tmp_path, monkeypatch):
    filmed = []
    monkeypatch.setattr(video.Film, "add", lambda film, moment: filmed.append((moment.episode, moment.step)))
    assert main(["play", str(run.root), "--episodes=2", "--max_steps=8", f"--video={tmp_path}/out.gif"]) == 0
    assert len(filmed) == 18 and filmed == sorted(filmed)


def test_a_film_of_an_agent_that_sees_small_grey_frames_is_the_game_in_colour_and_full_size(atari):
    trained = load(atari / "small_breakout", seed=5, camera=True)
    assert trained.environment.observation_spec().shape == (84, 84, 2)
    played, frames = [], []
    for moment in play.moments(trained, 2, 70):
        played.append(moment)
        frames.append(np.array(trained.environment.frame))
    trained.environment.close()
    gin.clear_config()
    settings = dict(repeat_action_probability=0.25, fire_on_new_life=True, terminal_on_life_loss=True)
    alone = environments.make("breakout", seed=5, full_action_set=False, max_episode_steps=80, **settings)
    time_step = alone.reset()
    for moment, frame in zip(played[:71], frames, strict=False):
        np.testing.assert_array_equal(
            frame, np.repeat(np.repeat(time_step.observation[0], 2, axis=0), 2, axis=1)
        )
        if moment.action is not None:
            time_step = alone.step(np.array([moment.action]))
    alone.close()
    assert played[70].cut and np.ptp(frames[0].astype(int), axis=-1).max() > 100
    # What the agent saw is the same in grey, but for how greys are mixed and edges of bricks; without the score.
    for moment, frame in zip(played, frames, strict=True):
        if not moment.ended:
            grey = Image.fromarray(frame).convert("L").resize((84, 84), Image.Resampling.BOX)
            difference = np.asarray(grey)[8:].astype(int) - moment.observation[8:, :, -1]
            assert np.mean(np.abs(difference) > 60) < 0.001


def test_a_camera_that_shows_another_game_ends_the_film(atari):
    trained = load(atari / "small_breakout", seed=5, camera=True)
    other = load(atari / "small_breakout", seed=6)
    trained.environment._camera.close()
    trained.environment._camera = other.environment
    with pytest.raises(RuntimeError, match="breakout: the camera shows another game than the agent plays"):
        list(play.moments(trained, 3))
    trained.environment.close()


def test_agents_that_see_the_consoles_own_picture_need_no_camera(tmp_path):
    raw = [binding for binding in ATARI if not any(word in binding for word in ("img_", "gray", "stack"))]
    trained = load(write_slim_run(tmp_path / "run", *raw), camera=True)
    assert not isinstance(trained.environment, pictures.WithCamera)
    trained.environment.close()
    trained = load(tmp_path / "run", camera=False)
    film = video.Film(tmp_path / "out.gif", trained)
    assert film._picture(trained.environment.reset().observation[0]).size == (320, 420)
    trained.environment.close()


def test_a_gif_ends_at_its_limit_and_says_so(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(video, "GIF_FRAMES", 5)
    assert main(["play", str(run.root), "--episodes=1", "--max_steps=8", f"--video={tmp_path}/out.gif"]) == 0
    assert "5 frames, 0 s. A GIF holds the first 5 frames alone" in capsys.readouterr().out
    with Image.open(tmp_path / "out.gif") as film:
        assert film.n_frames == 5


def test_the_row_of_the_acting_head_is_marked_and_lines_begin_anew_with_an_episode(trained):
    panel = video.Panel(trained)
    moments = list(play.moments(trained, 2, 6))
    images = [panel.draw(None, moment) for moment in moments]
    background = [images[0].getpixel((6, 112 + 30 * head + 3)) for head in (0, 1)]
    assert background[trained.head] != background[1 - trained.head] == images[0].getpixel((0, 0))
    anew = video.Panel(trained).draw(None, moments[7])
    assert moments[7].step == 0 and images[7].tobytes() == anew.tobytes() != images[6].tobytes()


def test_what_the_agent_sees_becomes_a_picture_in_whole_pixels():
    with_flags = environments.make("minatar/breakout")
    flags = with_flags.reset().observation[0]
    image = np.array(pictures.picture(flags, with_flags.observation_spec()))
    assert image.shape == (420, 420, 3)
    cells = image[::42, ::42]
    np.testing.assert_array_equal(image, np.repeat(np.repeat(cells, 42, 0), 42, 1))
    np.testing.assert_array_equal((cells > 0).any(-1), (flags > 0).any(-1))
    atari = environments.make("pong")
    frame = atari.reset().observation[0]
    image = np.array(pictures.picture(frame, atari.observation_spec()))
    np.testing.assert_array_equal(image, np.repeat(np.repeat(frame, 2, 0), 2, 1))
    for environment in (with_flags, atari):
        environment.close()


@pytest.mark.parametrize("full, names", [(False, "noop fire right left"), (True, "noop fire up right left")])
def test_actions_of_atari_are_named_in_any_set_of_them(full, names):
    environment = environments.make("breakout", full_action_set=full)
    trained = SimpleNamespace(environment=environment)
    known = [video.action_name(trained, action) for action in range(environment.num_actions)]
    environment.close()
    assert known[:5] == names.split() and len(known) == (18 if full else 4)


def test_of_observations_that_are_no_pictures_the_environments_own_are_taken():
    environment = environments.make("CartPole-v1")
    observation = environment.reset().observation[0]
    assert pictures.picture(observation, environment.observation_spec()) is None
    assert pictures.rendered(environment).size == (600, 400)
    environment.close()


def test_what_cannot_be_played_is_refused_in_one_line(run, tmp_path, capsys, monkeypatch):
    assert f"There is no folder {tmp_path}/none" in refusal(capsys, tmp_path / "none")
    assert "it holds no config.gin" in refusal(capsys, tmp_path)
    (tmp_path / "config.gin").write_text("train.updates = 3")
    assert "holds no weights yet" in refusal(capsys, tmp_path)
    (tmp_path / "best.npz").write_bytes(b"")
    assert "holds no checkpoint yet" in refusal(capsys, tmp_path, "--checkpoint=latest")
    assert "cannot be built from" in refusal(capsys, tmp_path)
    answer = refusal(capsys, run.root, "--head=unclipped_0.9")
    assert "There is no head 'unclipped_0.9'. Did you mean unclipped_0.99" in answer
    assert "There is no head '2'. There is: clipped_0.9, unclipped_0.99." in refusal(
        capsys, run.root, "--head=2"
    )
    assert "ends in .mp4 or .gif" in refusal(capsys, run.root, "--video=out.avi")
    assert "cannot be written" in refusal(capsys, run.root, f"--video={tmp_path}/none/out.gif")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    answer = refusal(capsys, run.root, f"--video={tmp_path}/out.mp4")
    assert 'pip install "rbs-tf[video]"' in answer and "out.gif" in answer


def test_pretrained_weights_play_film_and_export_by_name(atari, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trained_module, "PRETRAINED", atari)
    name = "--pretrained=small_breakout"
    assert main(["play", name, "--episodes=3", "--max_steps=30"]) == 0
    first, *episodes, _ = capsys.readouterr().out.splitlines()
    assert "1.5 per episode in 2 episodes, at update 7" in first and len(episodes) == 3
    assert first.endswith("As in its evaluations, 5% of its actions are random.")
    assert main(["play", name, "--episodes=1", "--max_steps=20", f"--video={tmp_path}/out.gif"]) == 0
    with Image.open(tmp_path / "out.gif") as film:
        assert film.n_frames == 21 and film.height >= 420
        game = np.asarray(film.convert("RGB"))[:420, :320].astype(int)
    assert np.ptp(game, axis=-1).max() > 100
    assert main(["export", name, str(tmp_path / "exported")]) == 0
    described = json.loads((tmp_path / "exported" / "policy.json").read_text())
    assert described["environment"] == "breakout" and described["observation"]["dtype"] == "uint8"
    height, width, _ = described["observation"]["shape"]
    assert (height, width) == tuple(
        described["environment_settings"][f"img_{side}"] for side in ("height", "width")
    )


def test_pretrained_weights_that_there_are_not_or_no_longer_are_refused(atari, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trained_module, "PRETRAINED", tmp_path / "pretrained")
    assert "There is no pretrained agent 'pong'. " in refusal(capsys, "--pretrained=pong")
    shutil.copytree(atari, tmp_path / "pretrained")
    answer = refusal(capsys, "--pretrained=pong")
    assert "There is no pretrained agent 'pong'. There is: small_breakout." in answer
    name, weights = "--pretrained=small_breakout", tmp_path / "pretrained" / "small_breakout" / "best.npz"
    assert "RUN_DIR and --pretrained exclude each other: give runs/mine or" in refusal(
        capsys, "runs/mine", name
    )
    assert "Give the folder of a run as RUN_DIR, or --pretrained=NAME" in refusal(capsys)
    back = "type in the repository: git checkout -- pretrained/small_breakout/best.npz"
    contents = weights.read_bytes()
    weights.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    answer = refusal(capsys, name)
    assert f"{weights} is damaged" in answer and back in answer
    weights.unlink()
    answer = refusal(capsys, name)
    assert f"{weights} is missing" in answer and back in answer
    # A file that nobody vouches for is not taken, either.
    weights.write_bytes(contents)
    sums = tmp_path / "pretrained" / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.open() if "best.npz" not in line))
    assert f"{weights} is damaged" in refusal(capsys, name)


def test_refusals_do_not_wait_for_tensorflow(tmp_path):
    (tmp_path / "config.gin").touch()
    program = (
        "import sys\n"
        "from agents.__main__ import main\n"
        "for argv in ([], ['nowhere'], ['--pretrained=none'], ['.'], ['.', '--sead=1'], [sys.argv[1]],\n"
        "             [sys.argv[1], '--video=x.avi']):\n"
        "    assert main(['play', *argv]) == 2\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# Feeds the time steps of an episode to the exported policy, where nothing of this project can be imported.
ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rbs_tf", "agents", "networks", "tf_agents", "gin"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import numpy as np
import tensorflow as tf

folder, steps = sys.argv[1:]
policy, steps = tf.saved_model.load(folder), dict(np.load(steps))
state, played = policy.initial_state(1), []
for index in range(len(steps["reward"])):
    step = policy.act(**{name: column[index : index + 1] for name, column in steps.items()}, **state)
    state = {name: step[name] for name in state}
    played.append((step["action"][0], step["values"][0]))
actions, values = zip(*played)
# The same, served: a batch of all the first steps.
first = {name: column[steps["step_type"] == 0] for name, column in steps.items()}
size = tf.constant(len(first["reward"]))
state = policy.signatures["initial_state"](batch_size=size)
served = policy.signatures["serving_default"](**{n: tf.constant(c) for n, c in first.items()}, **state)
np.savez("played.npz", actions=actions, values=values, served=served["values"])
"""


def test_an_exported_policy_plays_the_same_without_this_package(run, trained, tmp_path, capsys):
    assert main(["export", str(run.root), str(tmp_path / "exported")]) == 0
    assert "described in its policy.json" in capsys.readouterr().out
    moments = [moment for moment in play.moments(trained, 2, 40) if not moment.ended]
    np.savez(
        tmp_path / "steps.npz",
        observation=[moment.observation for moment in moments],
        reward=np.array([moment.reward for moment in moments], np.float32),
        discount=np.ones(len(moments), np.float32),
        step_type=np.array([moment.step > 0 for moment in moments], np.int32),
    )
    alone = tmp_path / "alone"
    alone.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "exported"), str(tmp_path / "steps.npz")],
        cwd=alone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    played = np.load(alone / "played.npz")
    assert played["actions"].tolist() == [moment.action for moment in moments]
    values = [moment.values for moment in moments]
    np.testing.assert_allclose(played["values"], values, rtol=1e-5)
    firsts = [moment.values for moment in moments if moment.step == 0]
    np.testing.assert_allclose(played["served"], firsts, rtol=1e-5)
    # An episode may go by without any reward: what one does is to be seen here.
    policy, observation = tf.saved_model.load(str(tmp_path / "exported")), moments[1].observation[None]
    step = policy.act(observation, [3.0], [1.0], [1], **policy.initial_state(1))
    outputs, _ = trained.agent.network(
        (observation, tf.constant([-1]), tf.constant([0.75])), tf.constant([1]), ()
    )
    np.testing.assert_allclose(step["values"], trained.values(tf.reduce_max(outputs, -1)), rtol=1e-5)
    described = json.loads((tmp_path / "exported" / "policy.json").read_text())
    assert described["heads"] == list(NAMES) and described["acting_head"] == NAMES[trained.head]


def test_an_export_takes_another_head_and_no_folder_that_exists(run, tmp_path, capsys):
    assert main(["export", str(run.root), "--head=0", str(tmp_path / "exported"), "--checkpoint=latest"]) == 0
    described = json.loads((tmp_path / "exported" / "policy.json").read_text())
    assert (described["acting_head"], described["update"]) == (NAMES[0], 30)
    capsys.readouterr()
    assert main(["export", str(run.root), str(tmp_path / "exported")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["export", str(run.root), str(tmp_path / "none" / "exported")]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_the_weights_in_the_repository_are_whole_and_small():
    names = [path.name for path in trained_module.PRETRAINED.iterdir() if path.is_dir()]
    assert "pong" in names
    files = [file for name in names for file in trained_module.pretrained(name).iterdir()]
    assert sum(file.stat().st_size for file in files) < 5e6
