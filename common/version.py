"""The version of Holdfast in servers and the CLI, and how to install what a part of it needs.

The distribution's version (pyproject.toml) is the same.
"""

VERSION = "0.1.0"

#: Imported package -> the extra that brings it, where a command or a server may lack it.
EXTRAS = {
    "aiohttp": "server",
    "click": "tools",
    "cryptography": "ca",
    "grpc": "server",
    "grpc_health": "server",
    "grpc_reflection": "server",
    "hdfs_native": "dfs",
    "jinja2": "server",
    "lmdb": "server",
    "numpy": "arrow",
    "prometheus_client": "server",
    "psutil": "tools",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "pysyncobj": "server",
    "rich": "tools",
}


def installing(extra: str) -> str:
    """Return what brings an extra. No package index has Holdfast before its first release, so a clone comes first."""
    return f"pip install '.[{extra}]' in a clone of Holdfast, or 'holdfast[{extra}]' from a wheelhouse that has it"


def missing(what: str, package: str) -> str:
    """Return the sentence for `what`, such as "holdfast master", that lacks one of EXTRAS."""
    return f"{what} needs the package {package}, which is not installed: {installing(EXTRAS[package])}"
