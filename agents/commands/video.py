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
_PANEL, _LINE, _MARGIN = 320, 28, 14  # pixels
_BACKGROUND = (18, 20, 26)
_TEXT = (232, 232, 232)
_FAINT = (140, 145, 155)
_ACTING = (255, 200, 60)


def check_file(path: str | os.PathLike) -> None:
    """Raises UsageError if no film can be written there; needs no TensorFlow."""
    path = Path(path)
    if path.suffix not in (".mp4", ".gif"):
        raise UsageError(f"--video={path}: expected a name that ends in .mp4 or .gif.")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        needed = "MP4 needs imageio-ffmpeg: pip install imageio-ffmpeg"
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

    A frame is the game, and a row per head: its name, and its highest value now, in yellow for the head that acts. An
    Atari game is filmed by a second environment that plays the same game in colour and full size, unless that is what
    the agent sees.

    Args:
      path: see `check_file`.
      agent: what plays.
      environment: where.
      seed: of the environment.
    """

    def __init__(
        self, path: str | os.PathLike, agent: Agent, environment: GymnasiumVectorEnvironment, seed: int = 0
    ):
        from agents.replay.memory import ATARI_FRAME
        from rbs_tf.environments.names import RAW_FRAMES

        self._path = Path(path)
        self._agent = agent
        self._environment = environment
        render_rate = environment.vector_env.metadata.get("render_fps", OTHER_RATE)
        self._rate = ATARI_RATE if environment.game else float(render_rate)
        self._camera: GymnasiumVectorEnvironment | None = None
        if environment.game and environment.observation_spec().shape != ATARI_FRAME:
            self._camera = agent.make_environment(1, seed, **RAW_FRAMES)
        self._before: Moment | None = None
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
        frame = self.draw(self.picture(moment), moment)
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
        if self._camera is not None:
            self._camera.close()
        if self._writer is not None:
            self._writer.close()
        if self._frames:
            first, *others = self._frames
            milliseconds = 10 * round(100 / self._rate)
            first.save(self._path, save_all=True, append_images=others, duration=milliseconds, loop=0)
            self._frames = []

    def picture(self, moment: Moment) -> Image.Image | None:
        """The game, from the camera if there is one; takes each moment once."""
        if self._camera is None:
            return game_picture(self._environment, moment.observation)
        if self._before is None or self._before.cut:
            seen = self._camera.reset()
        else:  # behind an end any action begins the next episode
            seen = self._camera.step(np.array([self._before.action or 0]))
        self._before = moment
        return _enlarge(seen.observation[0])

    def draw(self, picture: Image.Image | None, moment: Moment) -> Image.Image:
        """RGB of even width and height, always the same for pictures of the same size."""
        names = self._agent.heads.names
        left, height = (0, 0) if picture is None else picture.size
        height = max(height, _LINE * (5 + len(names)))
        image = Image.new("RGB", (left + _PANEL + left % 2, height + height % 2), _BACKGROUND)
        if picture is not None:
            image.paste(picture, (0, (height - picture.height) // 2))
        rows = [
            (self._agent.name, f"return {moment.episode_return:.6g}", _TEXT),
            (f"episode {moment.episode}, step {moment.step:,}", f"reward {moment.reward:+.6g}", _FAINT),
            ("", "", _FAINT),
            ("head", "highest Q", _FAINT),
        ]
        for index, name in enumerate(names):
            color = _ACTING if index == self._agent.head else _TEXT
            rows.append((name, f"{moment.values[index]:,.4g}", color))
        draw = ImageDraw.Draw(image)
        font = ImageFont.load_default(14)
        for index, (words, number, color) in enumerate(rows):
            top = _LINE * index + _LINE // 2
            draw.text((left + _MARGIN, top), words, color, font)
            draw.text((left + _PANEL - _MARGIN, top), number, color, font, anchor="ra")
        return image


def game_picture(environment: Any, observation: np.ndarray) -> Image.Image | None:
    """Draws the game, enlarged by whole pixels: what the agent sees, else Gymnasium's picture; None without any.

    Args:
      environment: where the agent acts.
      observation: uint8 [height, width, 3] in colour, [height, width, K] in grey, the newest of a stack last, or flags:
        zeros and ones [height, width, C], which get a colour per channel, later channels above earlier ones.
    """
    spec = environment.observation_spec()
    if isinstance(observation, dict):
        name = next(name for name in sorted(observation) if observation[name].ndim == 3)
        observation = observation[name]
        spec = spec[name]
    if observation.dtype != np.uint8 or observation.ndim != 3:
        return _render(environment)
    channels = observation.shape[-1]
    if np.all(spec.maximum <= 1):
        hues = (colorsys.hsv_to_rgb(index / channels, 0.65, 1.0) for index in range(channels))
        colors = np.array([(0.0, 0.0, 0.0), *hues]) * 255
        topmost = np.max(observation * np.arange(1, channels + 1, dtype=np.uint8), axis=-1)
        pixels = colors.astype(np.uint8)[topmost]
    else:
        pixels = observation if channels == 3 else np.repeat(observation[..., -1:], 3, axis=-1)
    return _enlarge(pixels)


def _enlarge(pixels: np.ndarray) -> Image.Image:
    image = Image.fromarray(pixels)
    factor = max(1, _SIDE // image.height)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _render(environment: Any) -> Image.Image | None:
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
