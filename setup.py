"""The packages of Holdfast, listed one by one.

The import root `holdfast` is a namespace without an `__init__` and its parts live in top-level folders, which the
finder of setuptools cannot map. So the list is written out here; tests/test_house.py compares it with the tree.
Everything else about the distribution is in pyproject.toml.
"""

from setuptools import setup

PACKAGES = [
    "holdfast.client",
    "holdfast.client.cli",
    "holdfast.client.cli.benches",
    "holdfast.client.cli.doctoring",
    "holdfast.client.cli.drills",
    "holdfast.client.core",
    "holdfast.client.core.doctor",
    "holdfast.client.spark",
    "holdfast.common",
    "holdfast.common.dfs",
    "holdfast.common.net",
    "holdfast.common.proto",
    "holdfast.common.security",
    "holdfast.master",
    "holdfast.master.core",
    "holdfast.master.machine",
    "holdfast.master.placement",
    "holdfast.master.proto",
    "holdfast.master.raft",
    "holdfast.master.service",
    "holdfast.master.web",
    "holdfast.worker",
    "holdfast.worker.core",
    "holdfast.worker.core.tiers",
    "holdfast.worker.server",
    "holdfast.worker.storage",
]

setup(
    packages=PACKAGES,
    package_dir={f"holdfast.{part}": part for part in ("common", "master", "worker", "client")},
    package_data={
        "": ["py.typed", "*.proto", "*.pyi", "*.css"],
        "holdfast.client": ["jvm/src/main/**/*.java", "jvm/src/spark*/**/*.java", "jvm/prebuilt/*.jar"],
    },
)
