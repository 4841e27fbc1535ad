"""Names of environments. Free of TensorFlow, so that listing and misspelling are answered at once."""

from __future__ import annotations

import contextlib
import difflib

import gymnasium

from rbs_tf import scores

with contextlib.suppress(ImportError):
    import ale_py  # noqa: F401 - registers the "ALE/..." ids with Gymnasium

# Of Atari.
FRAMES_PER_STEP = 4
RAW_FRAMES = {"img_height": 210, "img_width": 160, "grayscale": False, "stack_num": 1}

#: Gymnasium id -> plain name of every Atari game that one player can play: {"ALE/Pong-v5": "pong", ...}.
ATARI_IDS: dict[str, str] = {
    name: spec.kwargs["game"] for name, spec in gymnasium.registry.items() if name.startswith("ALE/")
}
ATARI_GAMES: frozenset[str] = frozenset(ATARI_IDS.values())

#: Plain names of MinAtar's games, listed here because the package that registers them is optional.
MINATAR_GAMES: tuple[str, ...] = tuple(
    f"minatar/{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
)


def atari_game(env_id: str) -> str | None:
    """The plain name of the game that a Gymnasium id plays by rules of its own: "PongNoFrameskip-v4" -> "pong"."""
    spec = gymnasium.registry.get(env_id)
    return spec.kwargs.get("game") if spec and str(spec.entry_point).startswith("ale_py") else None


def minatar_id(name: str) -> str:
    """ "minatar/space_invaders" -> "MinAtar/SpaceInvaders-v1"."""
    return f"MinAtar/{name.removeprefix('minatar/').title().replace('_', '')}-v1"


def list_environments() -> dict[str, tuple[str, ...]]:
    """The names that `make` takes, by family, for showing to people."""
    return {
        "Atari (57 games)": scores.GAMES,
        'MinAtar (pip install ".[minatar]")': MINATAR_GAMES,
        "Gymnasium": ("any id with a discrete action space, such as CartPole-v1",),
    }


def find_nearest(name: str) -> list[str]:
    """The known names most like `name`, best first; upper case, "_" and "-" do not count."""

    def letters(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "")

    # Gymnasium has every game under several older ids with other rules as well: do not suggest those.
    others = [i for i, spec in gymnasium.registry.items() if not str(spec.entry_point).startswith("ale_py")]
    known = {letters(known): known for known in [*others, *MINATAR_GAMES, *scores.GAMES]}
    return [known[match] for match in difflib.get_close_matches(letters(name), known, n=3, cutoff=0.55)]
