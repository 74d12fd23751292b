"""The one door of a worker's storage to the world."""
