"""A film of an agent at play: the game, and beside it what each of its heads expects."""

from __future__ import annotations

import colorsys
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from agents.commands.flags import check_output
from agents.errors import UsageError

if TYPE_CHECKING:
    from agents import Agent
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment

GIF_FRAMES = 1000  # a GIF is put together in memory, a third of a MB for each of them
ATARI_RATE = 15.0  # frames per second at the console's own speed: it draws 60, and 4 make a step
OTHER_RATE = 10.0  # for what does not say

_SIDE = 420  # pixels that the picture should come near to
_PANEL, _HEADER, _ROW, _MARGIN = 450, 92, 30, 14  # pixels
_NAME, _LINE = 130, 200  # widths of a row's first two columns, pixels
_HISTORY = 150  # steps that a line shows
_BACKGROUND, _TEXT, _FAINT, _CURVE = (18, 20, 26), (232, 232, 232), (140, 145, 155), (110, 170, 230)
_ACTING, _ACTING_CURVE = (54, 46, 20), (255, 200, 60)


def check_file(path: str | os.PathLike) -> None:
    """Raises UsageError if no film can be written there; needs no TensorFlow."""
    path = Path(path)
    if path.suffix not in (".mp4", ".gif"):
        raise UsageError(f"--video={path}: expected a name that ends in .mp4 or .gif.")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        needed = 'MP4 needs imageio-ffmpeg: pip install ".[video]"'
        raise UsageError(f"--video={path}: {needed}. Or write --video={path.with_suffix('.gif')}.")
    if not path.parent.is_dir():
        raise UsageError(f"--video={path} cannot be written: give a file in a folder that exists.")
    check_output("--video", path)


class Moment(NamedTuple):
    """One time step of an episode, and what the agent makes of it."""

    episode: int  # from 1
    step: int  # steps made before it in this episode
    observation: np.ndarray
    reward: float  # of the step that led here, units of the environment
    episode_return: float  # so far
    values: np.ndarray  # float32 [H], see `Agent.values`; at an end those of before
    action: int | None  # taken here; None at an end
    ended: bool
    cut: bool  # ended only because it had lasted long enough


class Film:
    """Writes one frame per moment as it comes, into an MP4 (H.264) or a GIF.

    A frame is the game, and a row per head: its name, the course of its highest value over the episode's last steps,
    and this value now. Each line has a scale of its own, as heads differ by orders of magnitude.

    Args:
      path: see `check_file`.
      agent: what plays.
      environment: where.
    """

    def __init__(self, path: str | os.PathLike, agent: Agent, environment: GymnasiumVectorEnvironment):
        self._path, self._agent, self._environment = Path(path), agent, environment
        render_rate = environment.vector_env.metadata.get("render_fps", OTHER_RATE)
        self._rate = ATARI_RATE if environment.game else float(render_rate)
        self._font, self._large = ImageFont.load_default(13), ImageFont.load_default(17)
        self._history: list[np.ndarray] = []  # of the present episode, as are the next two
        self._low, self._high = (np.zeros(len(agent.heads)) for _ in range(2))
        self._note = ""
        self._writer: Any = None
        self._frames: list[Image.Image] = []
        self._count = 0

    @property
    def words(self) -> str:
        """A line about the finished film."""
        seconds = f"{self._count:,} frames, {self._count / self._rate:.0f} s"
        return f"Video: {self._path}, {seconds}.{self._note}"

    def add(self, moment: Moment) -> None:
        """Draws and writes a frame."""
        if self._path.suffix == ".gif" and len(self._frames) == GIF_FRAMES:
            self._note = f" A GIF holds only the first {GIF_FRAMES:,} frames; an MP4 holds all."
            return
        shown = game_picture(self._environment, moment.observation)
        if shown is None:
            self._note = " The environment draws no pictures: only values are shown."
        frame = self.draw(shown, moment)
        self._count += 1
        if self._path.suffix == ".gif":
            self._frames.append(frame.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
            return
        if self._writer is None:
            import imageio_ffmpeg

            # 4:2:0 is what every player takes.
            options = {"fps": self._rate, "codec": "libx264", "macro_block_size": 2, "pix_fmt_out": "yuv420p"}
            self._writer = imageio_ffmpeg.write_frames(str(self._path), frame.size, **options)
            self._writer.send(None)
        self._writer.send(frame.tobytes())

    def close(self) -> None:
        """Finishes the file; one that was interrupted holds what there was."""
        if self._writer is not None:
            self._writer.close()
        if self._frames:
            first, *others = self._frames
            milliseconds = 10 * round(100 / self._rate)
            first.save(self._path, save_all=True, append_images=others, duration=milliseconds, loop=0)
            self._frames = []

    def draw(self, picture: Image.Image | None, moment: Moment) -> Image.Image:
        """RGB of even width and height, always the same for pictures of the same size."""
        names = self._agent.heads.names
        if moment.step == 0:
            self._history, self._low, self._high = [], moment.values, moment.values
        self._history = [*self._history[1 - _HISTORY :], moment.values]
        self._low = np.minimum(self._low, moment.values)
        self._high = np.maximum(self._high, moment.values)
        left, height = (0, 0) if picture is None else picture.size
        height = max(height, _HEADER + _ROW * len(names) + _MARGIN)
        image = Image.new("RGB", (left + _PANEL + left % 2, height + height % 2), _BACKGROUND)
        if picture is not None:
            image.paste(picture, (0, (height - picture.height) // 2))
        draw = ImageDraw.Draw(image)
        start, right = left + _MARGIN, left + _PANEL - _MARGIN
        played = f"episode {moment.episode}, step {moment.step:,}"
        draw.text((start, 10), self._agent.name, _TEXT, self._large)
        draw.text((right, 10), f"return {moment.episode_return:.6g}", _TEXT, self._large, anchor="ra")
        draw.text((start, 36), played, _FAINT, self._font)
        color = _ACTING_CURVE if moment.reward else _FAINT
        draw.text((right, 36), f"reward {moment.reward:+.6g}", color, self._font, anchor="ra")
        draw.text((start, _HEADER - 24), "head", _FAINT, self._font)
        draw.text((start + _NAME, _HEADER - 24), "highest Q, each on its own scale", _FAINT, self._font)
        draw.text((right, _HEADER - 24), "now", _FAINT, self._font, anchor="ra")
        for index, course in enumerate(np.transpose(self._history)):
            top, acting = _HEADER + _ROW * index, index == self._agent.head
            if acting:
                draw.rectangle((left + 4, top, left + _PANEL - 5, top + _ROW - 3), _ACTING)
            color, middle = (_ACTING_CURVE if acting else _TEXT), top + _ROW // 2 - 1
            draw.text((start, middle), names[index], color, self._font, anchor="lm")
            draw.text((right, middle), f"{course[-1]:,.4g}", color, self._font, anchor="rm")
            span = self._high[index] - self._low[index]
            relative = (course - self._low[index]) / span if span > 0 else np.full_like(course, 0.5)
            across = start + _NAME + _LINE / (_HISTORY - 1) * np.arange(len(course))
            points = zip(across, top + _ROW - 6 - (_ROW - 9) * relative, strict=True)
            draw.line(list(points), _ACTING_CURVE if acting else _CURVE, 1)
        return image


class WithCamera:
    """An Atari environment, and a second one that plays the same game and renders it in colour and full size.

    An emulator of ALE gives one kind of frames; two with equal seeds and actions play the same game.

    Args:
      environment: where an agent acts; everything but `frame` is its own.
      camera: made like it but for the frames, with the same seed; closed with it.
    """

    def __init__(self, environment: GymnasiumVectorEnvironment, camera: GymnasiumVectorEnvironment):
        self._environment, self._camera = environment, camera
        self.frame: np.ndarray = np.zeros(0)  # of the first environment, now: uint8 [210, 160, 3]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self) -> Any:
        return self._together(self._environment.reset(), self._camera.reset())

    def step(self, action: np.ndarray) -> Any:
        """One step of both; a RuntimeError if they are not the same."""
        return self._together(self._environment.step(action), self._camera.step(action))

    def close(self) -> None:
        self._environment.close()
        self._camera.close()

    def _together(self, acted: Any, filmed: Any) -> Any:
        for name in ("reward", "discount", "step_type"):
            here, there = getattr(acted, name), getattr(filmed, name)
            if not np.array_equal(here, there):
                found = f"{name} {there}, not {here}"
                raise RuntimeError(f"the camera shows another game than the agent plays: {found}")
        self.frame = filmed.observation[0]
        return acted


def with_camera(
    agent: Agent, environment: GymnasiumVectorEnvironment, seed: int
) -> GymnasiumVectorEnvironment | WithCamera:
    """Puts a camera beside an Atari game, unless the agent sees the console's own picture.

    Args:
      environment: of the agent, made with this seed.
    """
    from agents.replay.memory import ATARI_FRAME
    from rbs_tf.environments.names import RAW_FRAMES

    if not environment.game or environment.observation_spec().shape == ATARI_FRAME:
        return environment
    return WithCamera(environment, agent.make_environment(1, seed, **RAW_FRAMES))


def game_picture(environment: Any, observation: np.ndarray) -> Image.Image | None:
    """Draws the game, enlarged by whole pixels: the camera's frame, else what the agent sees, else Gymnasium's picture.

    Args:
      environment: where the agent acts.
      observation: uint8 [height, width, 3] in colour, [height, width, K] in grey, the newest of a stack last, or flags:
        zeros and ones [height, width, C], which get a colour per channel, later channels above earlier ones.
    """
    if isinstance(environment, WithCamera):
        return _enlarged(environment.frame)
    spec = environment.observation_spec()
    if isinstance(observation, dict):
        name = next(name for name in sorted(observation) if observation[name].ndim == 3)
        observation, spec = observation[name], spec[name]
    if observation.dtype != np.uint8 or observation.ndim != 3:
        return _rendered(environment)
    channels = observation.shape[-1]
    if np.all(spec.maximum <= 1):
        hues = (colorsys.hsv_to_rgb(index / channels, 0.65, 1.0) for index in range(channels))
        colors = np.array([(0.0, 0.0, 0.0), *hues]) * 255
        topmost = np.max(observation * np.arange(1, channels + 1, dtype=np.uint8), axis=-1)
        pixels = colors.astype(np.uint8)[topmost]
    else:
        pixels = observation if channels == 3 else np.repeat(observation[..., -1:], 3, axis=-1)
    return _enlarged(pixels)


def _enlarged(pixels: np.ndarray) -> Image.Image:
    image = Image.fromarray(pixels)
    factor = max(1, _SIDE // image.height)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _rendered(environment: Any) -> Image.Image | None:
    """Lets Gymnasium draw an environment; None if it cannot."""
    envs = getattr(environment.vector_env, "envs", ())
    if not envs or "rgb_array" not in envs[0].metadata.get("render_modes", ()):
        return None
    # The mode is an argument of the constructor, but environments look at it whenever they draw.
    envs[0].unwrapped.render_mode = "rgb_array"
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # pygame complains about missing sound cards
    try:
        image = Image.fromarray(np.asarray(envs[0].render(), np.uint8))
    except Exception:  # environments raise all sorts of errors where a package is missing
        return None
    image.thumbnail((640, 640))
    return image
