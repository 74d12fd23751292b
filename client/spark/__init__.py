"""PySpark on Holdfast without a jar, and the settings of the plug-in."""
