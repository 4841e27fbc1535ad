"""The paper's arguments as small experiments: `python -m studies.NAME` draws one and says what it shows.

Each study is a function that computes numbers, one that draws them, and a `main` that leaves a figure (PNG and SVG)
and the numbers (CSV) in `--output_dir` and prints one line of conclusion. Drawing needs matplotlib.
"""
