"""What `holdfast doctor` makes of what was gathered: facts in, findings out."""
