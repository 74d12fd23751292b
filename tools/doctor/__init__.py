"""Gathers what `holdfast doctor` judges: this host, its disks, its ports, the servers, Spark. Thin, no opinions."""
