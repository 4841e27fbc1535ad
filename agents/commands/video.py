"""A film of an agent at play: the game, and beside it what each of its heads expects."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from agents.commands.pictures import WithCamera, picture, rendered
from agents.errors import UsageError

if TYPE_CHECKING:
    from agents.commands.loading import Trained

GIF_FRAMES = 1000  # a GIF is put together in memory, a third of a MB for each of them
ATARI_RATE = 15.0  # frames per second at the console's own speed: it draws 60, and 4 make a step
OTHER_RATE = 10.0  # for what does not say

_PANEL, _HEADER, _ROW, _MARGIN = 450, 112, 30, 14  # pixels
_NAME, _LINE = 130, 200  # widths of a row's first two columns, pixels
_HISTORY = 150  # steps that a line shows
_BACKGROUND, _TEXT, _FAINT, _CURVE = (18, 20, 26), (232, 232, 232), (140, 145, 155), (110, 170, 230)
_ACTING, _ACTING_CURVE = (54, 46, 20), (255, 200, 60)
_MINATAR_ACTIONS = ("no-op", "left", "up", "right", "down", "fire")


def check_file(path: str | os.PathLike) -> None:
    """Raises UsageError if no film can be written there; needs no TensorFlow."""
    path = Path(path)
    if path.suffix not in (".mp4", ".gif"):
        raise UsageError(f"--video={path}: expected a name that ends in .mp4 or .gif.")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UsageError(
            f'--video={path}: MP4 needs imageio-ffmpeg: pip install "rbs-tf[video]". '
            f"Or write --video={path.with_suffix('.gif')}."
        )
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(
            f"--video={path} cannot be written: give a file in a folder that exists and is yours."
        )


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


class Film:
    """Writes one frame per moment as it comes, into an MP4 (H.264) or a GIF.

    Args:
      path: see `check_file`.
      trained: what plays; its environment is asked for pictures.
    """

    def __init__(self, path: str | os.PathLike, trained: Trained):
        self._path, self._trained = Path(path), trained
        self._panel = Panel(trained)
        self._note = ""
        game = trained.environment.game
        render_rate = trained.environment._vector_env.metadata.get("render_fps", OTHER_RATE)
        self._rate = ATARI_RATE if game else float(render_rate)
        self._writer: Any = None
        self._frames: list[Image.Image] = []
        self._count = 0

    @property
    def words(self) -> str:
        """Says what was filmed, when all is done."""
        seconds = f"{self._count:,} frames, {self._count / self._rate:.0f} s"
        return f"Video: {self._path}, {seconds}.{self._note}"

    def add(self, moment: Moment) -> None:
        """Draws and writes a frame."""
        if self._path.suffix == ".gif" and len(self._frames) == GIF_FRAMES:
            self._note = f" A GIF holds the first {GIF_FRAMES:,} frames alone; an MP4 holds all."
            return
        shown = self._picture(moment.observation)
        if shown is None:
            self._note = " The environment draws no pictures: it shows values alone."
        frame = self._panel.draw(shown, moment)
        self._count += 1
        if self._path.suffix == ".gif":
            self._frames.append(frame.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
        else:
            if self._writer is None:
                self._writer = self._opened(frame.size)
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

    def _opened(self, size: tuple[int, int]) -> Any:
        import imageio_ffmpeg

        # 4:2:0 is what every player takes.
        writer = imageio_ffmpeg.write_frames(
            str(self._path), size, fps=self._rate, codec="libx264", pix_fmt_out="yuv420p", macro_block_size=2
        )
        writer.send(None)
        return writer

    def _picture(self, observation: np.ndarray) -> Image.Image | None:
        environment = self._trained.environment
        if isinstance(environment, WithCamera):
            return environment.frame
        image = picture(observation, environment.observation_spec())
        return rendered(environment) if image is None else image


class Panel:
    """Draws values beside the picture: a row per head, with its name, the course of its value and its value now.

    The course is that of the episode's last steps, each on a scale of its own, from the head's lowest value in the
    episode to its highest: heads differ by orders of magnitude.

    Args:
      trained: what plays.
    """

    def __init__(self, trained: Trained):
        self._trained = trained
        self._names = trained.agent.heads.names
        self._history: list[np.ndarray] = []
        self._low, self._high = (np.zeros(len(self._names)) for _ in range(2))
        self._font, self._large = ImageFont.load_default(13), ImageFont.load_default(17)

    def draw(self, picture: Image.Image | None, moment: Moment) -> Image.Image:
        """RGB of even width and height, always the same for pictures of the same size."""
        if moment.step == 0:
            self._history, self._low, self._high = [], moment.values, moment.values
        self._history = [*self._history[1 - _HISTORY :], moment.values]
        self._low = np.minimum(self._low, moment.values)
        self._high = np.maximum(self._high, moment.values)
        left, height = (0, 0) if picture is None else picture.size
        height = max(height, _HEADER + _ROW * len(self._names) + _MARGIN)
        image = Image.new("RGB", (left + _PANEL + left % 2, height + height % 2), _BACKGROUND)
        if picture is not None:
            image.paste(picture, (0, (height - picture.height) // 2))
        draw = ImageDraw.Draw(image)
        self._write_header(draw, left + _MARGIN, moment)
        for index in range(len(self._names)):
            self._draw_row(draw, left, _HEADER + _ROW * index, index)
        return image

    def _write_header(self, draw: ImageDraw.ImageDraw, left: int, moment: Moment) -> None:
        trained, right = self._trained, left + _PANEL - 2 * _MARGIN
        draw.text((left, 10), trained.name, _TEXT, self._large)
        draw.text((right, 10), f"return {moment.episode_return:.6g}", _TEXT, self._large, anchor="ra")
        draw.text((left, 36), f"episode {moment.episode}, step {moment.step:,}", _FAINT, self._font)
        color = _ACTING_CURVE if moment.reward else _FAINT
        draw.text((right, 36), f"reward {moment.reward:+.6g}", color, self._font, anchor="ra")
        action = "-" if moment.action is None else action_name(trained, moment.action)
        draw.text((left, 56), f"action: {action}", _TEXT, self._font)
        draw.text((right, 56), f"weights of update {trained.update:,}", _FAINT, self._font, anchor="ra")
        draw.text((left, _HEADER - 24), "head", _FAINT, self._font)
        draw.text((left + _NAME, _HEADER - 24), "highest Q, each on its own scale", _FAINT, self._font)
        draw.text((right, _HEADER - 24), "now", _FAINT, self._font, anchor="ra")

    def _draw_row(self, draw: ImageDraw.ImageDraw, left: int, top: int, index: int) -> None:
        acting = index == self._trained.head
        if acting:
            draw.rectangle((left + 4, top, left + _PANEL - 5, top + _ROW - 3), _ACTING)
        color, middle = (_ACTING_CURVE if acting else _TEXT), top + _ROW // 2 - 1
        left += _MARGIN
        draw.text((left, middle), self._names[index], color, self._font, anchor="lm")
        right = left + _PANEL - 2 * _MARGIN
        value = self._history[-1][index]
        draw.text((right, middle), f"{value:,.4g}", color, self._font, anchor="rm")
        span = self._high[index] - self._low[index]
        relative = [
            (values[index] - self._low[index]) / span if span > 0 else 0.5 for values in self._history
        ]
        bottom, height, step = top + _ROW - 6, _ROW - 9, _LINE / (_HISTORY - 1)
        points = [(left + _NAME + step * i, bottom - height * part) for i, part in enumerate(relative)]
        if len(points) > 1:
            draw.line(points, _ACTING_CURVE if acting else _CURVE, 1)


def action_name(trained: Trained, action: int) -> str:
    """In words where the game's actions are known: Atari's, or all 6 of MinAtar."""
    environment = trained.environment
    if environment.game:
        return environment._vector_env.unwrapped.ale.get_action_set()[action].name.lower()
    if environment.name.startswith("minatar/") and environment.num_actions == len(_MINATAR_ACTIONS):
        return _MINATAR_ACTIONS[action]
    return str(action)
