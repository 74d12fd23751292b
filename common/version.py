"""The version of Holdfast, as servers and the CLI tell it; the distribution's (pyproject.toml) is the same."""

VERSION = "0.1.0"
