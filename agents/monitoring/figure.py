"""The look of all figures: those of the report, of the studies and of the benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZED = ("axes.title", "axes.label", "xtick.label", "ytick.label", "legend.font", "figure.title")
# Not str: matplotlib's hints list all names that there are.
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    **{f"{what}size": 9.0 for what in _SIZED},
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "rbs_tf",  # the same figure, the same file
}


def new_figure(
    rows: int = 1, columns: int = 1, panel: tuple[float, float] = (4.5, 3.2), **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure in this style.

    Args:
      rows, columns: panels.
      panel: width and height of one panel in inches.
      **options: of `matplotlib.figure.Figure.subplots`, such as `sharex`.

    Returns:
      The figure and its axes, an array [rows, columns].
    """
    made_of = figure_class()
    import matplotlib

    matplotlib.rcParams.update(STYLE)
    figure = made_of(figsize=(columns * panel[0], rows * panel[1]), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def figure_class() -> type[Figure]:
    """Without pyplot: it would choose a backend for the whole process."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures are drawn with matplotlib: pip install matplotlib") from error
    return Figure
