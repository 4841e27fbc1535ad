"""One HTML page about finished and unfinished runs: `python -m agents report RUN_DIR...`, see docs/report.md.

`runs.py` reads run folders, `recorded.py` their configurations. `tables.py` puts runs into groups and makes the tables,
with the statistics of `estimates.py`: each is a CSV file. `page.py` draws two figures and writes the page.
"""
