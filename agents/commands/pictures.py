"""Pictures of a game as a person wants to see it, whatever the agent sees of it."""

from __future__ import annotations

import colorsys
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment

_SIDE = 420  # pixels that the picture should come near to


class WithCamera:
    """An environment, and beside it the same game as a person sees it, in colour and full size.

    What an agent sees may be small, grey and stacked, and an emulator of ALE's gives one kind of frames alone. Two of
    them with equal seeds and actions play the same game. Everything but `frame` is the environment's own.

    Args:
      environment: where an agent acts.
      camera: made like it but for the frames, with the same seed; it is closed with it.
    """

    def __init__(self, environment: GymnasiumVectorEnvironment, camera: GymnasiumVectorEnvironment):
        self._environment, self._camera = environment, camera
        self._frames: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    @property
    def frame(self) -> Image.Image | None:
        """The first environment of the batch at its latest time step, see `picture`."""
        return picture(self._frames[0], self._camera.observation_spec())

    def reset(self) -> Any:
        return self._together(self._environment.reset(), self._camera.reset())

    def step(self, action: np.ndarray) -> Any:
        """One step of both.

        Raises:
          RuntimeError: reward, discount or kind of the step are not the same in both.
        """
        return self._together(self._environment.step(action), self._camera.step(action))

    def close(self) -> None:
        self._environment.close()
        self._camera.close()

    def _together(self, acted: Any, filmed: Any) -> Any:
        for name in ("reward", "discount", "step_type"):
            here, there = getattr(acted, name), getattr(filmed, name)
            if not np.array_equal(here, there):
                raise RuntimeError(
                    f"{self._environment.name}: the camera shows another game than the agent plays: {name} {there},"
                    f" not {here}. Both should have had the same seed, settings and actions."
                )
        self._frames = filmed.observation
        return acted


def picture(observation: np.ndarray, spec: Any) -> Image.Image | None:
    """Draws what the agent sees, enlarged by whole pixels; None if it is no picture.

    Args:
      observation: uint8 [height, width, 3] in colour, [height, width] or [height, width, 1] in grey, or flags: zeros
        and ones [height, width, C], which get a colour per channel, later channels above earlier ones.
      spec: of it, a bounded array spec: its maximum tells flags from pixels.
    """
    if observation.dtype != np.uint8 or observation.ndim not in (2, 3):
        return None
    if observation.ndim == 2:
        observation = observation[..., None]
    channels = observation.shape[-1]
    if np.all(spec.maximum <= 1):
        hues = (colorsys.hsv_to_rgb(index / channels, 0.65, 1.0) for index in range(channels))
        colors = np.array([(0.0, 0.0, 0.0), *hues]) * 255
        topmost = np.max(observation * np.arange(1, channels + 1, dtype=np.uint8), axis=-1)
        pixels = colors.astype(np.uint8)[topmost]
    elif channels in (1, 3):
        pixels = np.repeat(observation, 3 // channels, axis=-1)
    else:
        return None
    image = Image.fromarray(pixels)
    factor = max(1, _SIDE // image.height)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def rendered(environment: Any) -> Image.Image | None:
    """Lets Gymnasium draw an environment whose observations are no pictures; None if it cannot."""
    envs = getattr(environment._vector_env, "envs", ())
    if not envs or "rgb_array" not in envs[0].metadata.get("render_modes", ()):
        return None
    # The mode is an argument of the constructor, but environments look at it whenever they draw.
    envs[0].unwrapped.render_mode = "rgb_array"
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # pygame complains about missing sound cards
    try:
        pixels = envs[0].render()
        image = Image.fromarray(np.asarray(pixels, np.uint8))
    except Exception:  # whatever an environment raises that lacks what it draws with
        return None
    image.thumbnail((640, 640))
    return image
