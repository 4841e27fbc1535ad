"""What a run has learned, filmed."""

import contextlib

import numpy as np
import pytest
from PIL import Image

from agents import Agent
from agents.__main__ import main
from agents.commands import play, video
from rbs_tf import environments


def test_a_video_has_a_frame_per_moment(run, tmp_path, capsys, monkeypatch):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    arguments = [str(run.root), "--episodes=2", "--max_steps=8"]
    assert main(["play", *arguments, f"--video={tmp_path}/out.mp4"]) == 0
    assert "out.mp4, 18 frames, " in capsys.readouterr().out
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "out.mp4"))
    meta = next(imageio_ffmpeg.read_frames(str(tmp_path / "out.mp4")))
    assert frames == 18 and meta["pix_fmt"].startswith("yuv420p")
    assert [side % 2 for side in meta["size"]] == [0, 0]
    filmed = []
    add = video.Film.add
    monkeypatch.setattr(
        video.Film, "add", lambda film, moment: filmed.append(moment[:2]) or add(film, moment)
    )
    monkeypatch.setattr(video, "GIF_FRAMES", 15)
    assert main(["play", *arguments, f"--video={tmp_path}/out.gif"]) == 0
    assert filmed == [(episode, step) for episode in (1, 2) for step in range(9)], "one after the other"
    assert "15 frames, 2 s. A GIF holds only the first 15 frames" in capsys.readouterr().out
    with Image.open(tmp_path / "out.gif") as film:
        assert (film.n_frames, film.size) == (15, meta["size"])


def test_the_row_of_the_acting_head_is_marked(agent, tmp_path, played):
    with contextlib.closing(agent.make_environment()) as environment:
        film = video.Film(tmp_path / "out.gif", agent, environment)
    first, second = (film.draw(None, moment) for moment in played(agent, 1, 1))
    rows = [np.array(first)[int(video._LINE * row) : int(video._LINE * (row + 1))] for row in (4.5, 5.5)]
    marked = [np.any(np.all(row == video._ACTING, axis=-1)) for row in rows]
    assert marked == [head == agent.head for head in (0, 1)]
    assert first.tobytes() != second.tobytes()


def test_what_the_agent_sees_becomes_a_picture_in_whole_pixels():
    def drawn(name, **options):
        environment = environments.make(name, **options)
        seen = environment.reset().observation[0]
        picture = video.game_picture(environment, seen)
        environment.close()
        return seen, np.array(picture)

    def enlarged(pixels, factor):
        return np.repeat(np.repeat(pixels, factor, 0), factor, 1)

    flags, image = drawn("minatar/breakout")
    assert image.shape == (420, 420, 3)
    np.testing.assert_array_equal(image, enlarged(image[::42, ::42], 42))
    np.testing.assert_array_equal((image[::42, ::42] > 0).any(-1), (flags > 0).any(-1))
    frame, image = drawn("pong")
    np.testing.assert_array_equal(image, enlarged(frame, 2))
    stack, image = drawn("pong", img_height=84, img_width=84, grayscale=True, stack_num=2)
    np.testing.assert_array_equal(image, enlarged(np.stack([stack[..., -1]] * 3, -1), 5))
    pytest.importorskip("pygame")
    _, image = drawn("CartPole-v1")
    assert image.shape == (400, 600, 3), "what is no picture, Gymnasium draws"


def test_a_film_of_an_agent_that_sees_small_grey_frames_is_the_game_in_colour_and_full_size(atari):
    agent = Agent.load(atari / "small_breakout")
    environment = agent.make_environment(seed=5)
    assert environment.observation_spec().shape == (84, 84, 2)
    film = video.Film(atari / "out.gif", agent, environment, seed=5)
    played = list(play.moments(agent, environment, 2, 70))
    frames = [np.array(film.picture(moment))[::2, ::2] for moment in played]
    environment.close()
    film.close()
    alone = environments.make("breakout", seed=5, max_episode_steps=80)
    time_step = alone.reset()
    for moment, frame in zip(played[:71], frames, strict=False):
        np.testing.assert_array_equal(frame, time_step.observation[0])
        if moment.action is not None:
            time_step = alone.step(np.array([moment.action]))
    alone.close()
    assert played[70].cut and np.ptp(frames[0].astype(int), axis=-1).max() > 100
