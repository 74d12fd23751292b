"""Tables of Arrow in shuffles, without Spark."""
