"""Where the masters are: what callers pass, or the variable HOLDFAST_MASTERS.

Called by sessions, the settings for Spark, the command line and the doctor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.common.addresses import is_address
from holdfast.common.errors import ConfigError

#: Names the masters' HTTP addresses where nothing else does.
MASTERS_VARIABLE = "HOLDFAST_MASTERS"


def masters_of(endpoints: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the given endpoints, or those of HOLDFAST_MASTERS. Raises ConfigError for wrong ones and for none."""
    if endpoints is None:
        endpoints = os.environ.get(MASTERS_VARIABLE, "")
        if not endpoints.strip(" ,"):
            raise ConfigError(
                f'no masters are named: pass endpoints="host:port,host:port,host:port" or set {MASTERS_VARIABLE}; '
                "`holdfast local` starts some to try, and prints them"
            )
    return parse_endpoints(endpoints)


def parse_endpoints(endpoints: str | Sequence[str]) -> tuple[str, ...]:
    """Return each "host:port" of a list, or of a text with commas, once. Raises ConfigError for anything else."""
    if not isinstance(endpoints, str | Sequence):
        raise ConfigError(f'endpoints are a text, "host:port,host:port", or a list of such, not {endpoints!r}')
    parts = endpoints.split(",") if isinstance(endpoints, str) else map(str, endpoints)
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for endpoint in found:
        if not is_address(endpoint):
            raise ConfigError(
                f'{endpoint!r} is no endpoint; write the masters\' HTTP addresses as "host:port,host:port"'
            )
    if not found:
        raise ConfigError('there is no endpoint; write the masters\' HTTP addresses as "host:port,host:port"')
    return found
