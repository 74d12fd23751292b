"""Benchmarks and the main job: what is measured with whole programs rather than with `holdfast bench`."""
