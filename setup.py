"""Builds the `rbs_tf` wheel; all metadata stands in pyproject.toml."""

from setuptools import setup

setup()
