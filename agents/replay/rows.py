"""Rows of experience: one named column for each thing that is known of an environment's step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.storage.state import State


@dataclasses.dataclass(frozen=True)
class Rows:
    """K consecutive rows of an environment, or [K, N, ...] of N of them: what it gave and what its policy made of it.

    An index is NumPy's and gives views: `rows[3:5]` are two rows, `rows[:, 0]` those of the first environment.
    """

    step_type: np.ndarray  # int32 [K]
    observation: Any  # [K, ...]; None where it is stored already
    previous_action: np.ndarray  # int32 [K], -1 on first rows
    reward: np.ndarray  # float32 [K], raw; 0 on first rows
    discount: np.ndarray  # float32 [K]; 0 on a terminal row, 1 elsewhere, time-outs included
    core_state: Any  # float32 [K, S], entering each row, flat; None where it is stored already
    taken_values: np.ndarray  # float32 [K, H], of the action taken
    greedy_values: np.ndarray  # float32 [K, H], of each head's best action
    head: np.ndarray  # int32 [K], that acts
    epsilon: np.ndarray  # float32 [K], its exploration

    @classmethod
    def padding(cls, count: int, like: Rows) -> Rows:
        """`count` rows that train nothing, with the columns of others."""
        padding = cls.empty(count, **vars(like[0]))
        for column in vars(padding).values():
            column[...] = 0
        padding.step_type[...] = StepType.LAST
        padding.previous_action[...] = -1
        return padding

    @classmethod
    def empty(cls, count: int, **row: np.ndarray) -> Rows:
        """Room for `count` rows; `row` is one of them."""
        return cls(**{name: np.empty((count, *of.shape), of.dtype) for name, of in row.items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        """Copies of rows, one part behind the other; all have the same columns."""
        columns: dict[str, Any] = {
            name: None if column is None else np.concatenate([vars(part)[name] for part in parts])
            for name, column in vars(parts[0]).items()
        }
        return cls(**columns)

    @classmethod
    def from_state(cls, state: State) -> Rows:
        """What `state` was of."""
        columns: dict[str, Any] = {field.name: state.get(field.name) for field in dataclasses.fields(cls)}
        return cls(**columns)

    def state(self) -> State:
        """Copies of the columns, by name."""
        return {name: np.array(column) for name, column in vars(self).items() if column is not None}

    def without_stored(self) -> Rows:
        """The same rows without what is large: observations and core states."""
        return dataclasses.replace(self, observation=None, core_state=None)

    def __len__(self) -> int:
        return len(self.step_type)

    def __getitem__(self, index: Any) -> Rows:
        columns: list[Any] = [None if column is None else column[index] for column in vars(self).values()]
        return Rows(*columns)
