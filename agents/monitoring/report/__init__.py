"""One HTML page about finished and unfinished runs: `python -m agents report RUN_DIR...`, see docs/report.md.

`runs.py` reads run folders, `recorded.py` their configurations. `groups.py` puts runs into groups and says what hinders
a comparison. `numbers.py` makes the tables, with the statistics of `estimates.py`: each is a CSV file. `panels.py`
draws them, and `page.py` writes the page.
"""
