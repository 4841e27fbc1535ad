"""Sweeps that search: Optuna draws what a trial changes, and learns from what came of the trials before.

    search = "tpe"                                                       # or "random"
    trials = 20
    RecurrentMultiHeadAgent.learning_rate = log_uniform(1e-4, 1e-2)      # or uniform
    SequenceShape.length = integer(20, 80)
    MlpTorso.units = choice((64,), (64, 64))

The study is a file in the sweep's folder: a search that was stopped goes on with the trials that it had begun.
"""

from __future__ import annotations

import ast
import csv
import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.errors import UsageError

RANGES = {  # what each is written like
    "uniform": "uniform(LOW, HIGH) with LOW < HIGH",
    "log_uniform": "log_uniform(LOW, HIGH) with 0 < LOW < HIGH",
    "integer": "integer(LOW, HIGH), whole numbers with LOW < HIGH",
    "choice": "choice(VALUE, VALUE, ...), two values or more, all different",
}
SAMPLERS = ("tpe", "random")
# Of a run's greedy evaluations; the first is the default.
OUTCOMES = ("final_return", "best_return", "mean_return")
_STUDY = "study.journal"  # in the sweep's folder


class RangeError(ValueError):
    """A range that is none; the message says what was expected."""


class Range(NamedTuple):
    """What a parameter is drawn from."""

    kind: str
    values: tuple

    @classmethod
    def parse(cls, call: ast.Call) -> Range:
        """Reads it as it stands in a sweep's file. Raises RangeError if it is none."""
        kind = ast.unparse(call.func)
        if kind not in RANGES:
            known = ", ".join(RANGES)
            raise RangeError(f"there is no {kind}(...). Expected {known}, a value or a list of values.")
        found = cls(kind, tuple(map(ast.literal_eval, call.args)))
        if call.keywords or not found._fits():
            raise RangeError(f"expected {RANGES[kind]}.")
        return found

    def _fits(self) -> bool:
        if self.kind == "choice":
            return len(set(map(repr, self.values))) == len(self.values) > 1
        numbers = (int,) if self.kind == "integer" else (int, float)
        if len(self.values) != 2 or any(type(value) not in numbers for value in self.values):
            return False
        low, high = self.values
        return bool(np.isfinite([low, high]).all()) and low < high and (self.kind != "log_uniform" or low > 0)

    def distribution(self, optuna: Any) -> Any:
        """As Optuna has it; choices are text, which it can write into any file."""
        if self.kind == "choice":
            return optuna.distributions.CategoricalDistribution([repr(value) for value in self.values])
        if self.kind == "integer":
            return optuna.distributions.IntDistribution(*self.values)
        return optuna.distributions.FloatDistribution(*self.values, log=self.kind == "log_uniform")

    def value(self, drawn: Any) -> Any:
        """The value of what has been drawn from the distribution."""
        return ast.literal_eval(drawn) if self.kind == "choice" else drawn


def ends(ranges: Mapping[str, Range]) -> list[dict[str, Any]]:
    """Trials that show whether the ranges fit: every choice, both ends of everything else."""
    longest = max(len(each.values) for each in ranges.values())
    return [
        {name: each.values[min(index, len(each.values) - 1)] for name, each in ranges.items()}
        for index in range(longest)
    ]


class Study:
    """The trials of a search, kept in the sweep's folder `root`.

    Args:
      root: made, if there is none.
      ranges: what is drawn, by the names of the sweep's file.
      sampler: one of SAMPLERS.
      fixed: the rest of the file; a study goes on only with the same.

    Raises:
      UsageError: Optuna is not installed, or the folder holds another study, or a damaged one.
    """

    def __init__(self, root: Path, ranges: Mapping[str, Range], sampler: str, fixed: Mapping[str, Any]):
        self._optuna, self._ranges, self._sampler = optuna(), ranges, sampler
        self._distributions = {name: each.distribution(self._optuna) for name, each in ranges.items()}
        root.mkdir(parents=True, exist_ok=True)
        storages = self._optuna.storages
        asked = {name: repr(value) for name, value in {**fixed, **ranges}.items()}
        try:
            storage = storages.JournalStorage(storages.journal.JournalFileBackend(str(root / _STUDY)))
            self._study = self._optuna.create_study(
                storage=storage, study_name="sweep", direction="maximize", load_if_exists=True
            )
            before = self._study.user_attrs.get("asked")
        except Exception as error:
            raise UsageError(
                f"{root / _STUDY} is damaged ({type(error).__name__}: {error}): give another folder with --root_dir."
            ) from error
        if before is None:
            self._study.set_user_attr("asked", asked)
        elif other := sorted(name for name in before | asked if before.get(name) != asked.get(name)):
            raise UsageError(
                f"{root} holds a search with another {', '.join(other)}: only search, trials and resources may change, "
                "or give another folder with --root_dir."
            )

    def draw(self, trials: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields number and values of each of so many `trials` that is not over: those begun, and then new ones."""
        for trial in self._drawn():
            if not trial.state.is_finished():
                yield trial.number, self._values(trial.params)
        while len(self._drawn()) < trials:
            # A sampler for each: what is drawn does not depend on where the search was stopped.
            number = len(self._study.get_trials(deepcopy=False))
            self._study.sampler = self._make_sampler(int(np.random.SeedSequence(number).generate_state(1)[0]))
            trial = self._study.ask(self._distributions)
            yield trial.number, self._values(trial.params)

    def _drawn(self) -> list[Any]:
        """The trials so far, without those that were stopped while they drew."""
        trials = self._study.get_trials(deepcopy=False)
        return [trial for trial in trials if trial.params.keys() == self._ranges.keys()]

    def _make_sampler(self, seed: int) -> Any:
        if self._sampler == "random":
            return self._optuna.samplers.RandomSampler(seed)
        with warnings.catch_warnings():  # it calls experimental what makes trials differ that run at once
            warnings.simplefilter("ignore")
            return self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def _values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each.value(drawn[name]) for name, each in self._ranges.items()}

    def tell(self, number: int, value: float) -> None:
        """Ends a trial."""
        self._study.tell(number, value)

    @property
    def best(self) -> tuple[int, float, dict[str, Any]] | None:
        """Number, value and what was drawn of the best trial; None while none is over."""
        try:
            best = self._study.best_trial
        except ValueError:
            return None
        return best.number, best.value, self._values(best.params)


def optuna() -> Any:
    """The module, quiet.

    Raises:
      UsageError: it is not installed.
    """
    try:
        module = importlib.import_module("optuna")
    except ImportError as error:
        raise UsageError("search needs Optuna. Install it with: pip install 'rbs-tf[search]'") from error
    module.logging.set_verbosity(module.logging.WARNING)
    return module


def outcome(folder: Path, what: str) -> float:
    """What a run has come to, one of OUTCOMES, from its table of evaluations.

    Raises:
      UsageError: it has made none that can be read.
    """
    from agents.tags import EVALUATION
    from agents.workers.evaluator import EPISODES

    returns, file = defaultdict(list), folder / EVALUATION / EPISODES
    try:
        for line in csv.DictReader(file.read_text().splitlines()):
            returns[int(line["update"])].append(float(line["return"]))
        means = [float(np.mean(returns[update])) for update in sorted(returns)]
        outcomes = means[-1], max(means), float(np.mean(means))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        why = type(error).__name__
        raise UsageError(f"{file} has no evaluation to judge the trial by ({why}).") from error
    return outcomes[OUTCOMES.index(what)]
