"""The state of what lives in Python, as flat dictionaries of arrays; a whole joins those of its parts by name."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

import numpy as np

State = dict[str, np.ndarray]


def numbered(arrays: Iterable[np.ndarray]) -> State:
    """Copies of them, by their place."""
    return {str(index): np.array(array) for index, array in enumerate(arrays)}


def joined(parts: Mapping[str, State]) -> State:
    """The state of a whole: each array is called "part/array"."""
    return {f"{name}/{key}": array for name, part in parts.items() for key, array in part.items()}


def joined_in_order(parts: Iterable[State]) -> State:
    """The same of parts that are called by their place."""
    return joined({str(index): part for index, part in enumerate(parts)})


def part(state: State, name: str) -> State:
    """Returns what `joined` was given under that name, or under "name/name" by two of them."""
    prefix = name + "/"
    return {key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)}


def to_bytes(state: State) -> bytes:
    """Packs it as the content of an .npz file, which keeps the order."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **state)
    return stream.getvalue()


def from_bytes(data: bytes) -> State:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
