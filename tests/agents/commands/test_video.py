"""What a run has learned, filmed."""

from types import SimpleNamespace

import gin
import numpy as np
import pytest
from PIL import Image

from agents.__main__ import main
from agents.commands import pictures, play, video
from agents.commands.loading import load
from rbs_tf import environments
from tests.agents.commands.small_runs import ATARI, write_slim_run


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
    pytest.importorskip("pygame")
    environment = environments.make("CartPole-v1")
    observation = environment.reset().observation[0]
    assert pictures.picture(observation, environment.observation_spec()) is None
    assert pictures.rendered(environment).size == (600, 400)
    environment.close()
