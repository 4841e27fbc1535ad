"""One HTML page about finished and unfinished runs: `python -m agents report RUN_DIR...`, see docs/report.md.

`runs.py` reads run folders and `settings.py` their configurations, `events.py` TensorBoard's files; `estimates.py` is
the statistics; `study.py` puts runs into groups, and `tables.py` makes the numbers of every section; `panels.py` draws
them and `page.py` writes the page.
"""
