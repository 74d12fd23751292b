"""The settings of `conf()` for Spark jobs in processes of their own, whatever runs in the process of the tests."""

from functools import partial

from holdfast.client.spark import conf as conf_here

conf = partial(conf_here, here=False)
