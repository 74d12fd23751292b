"""The status page of a master: gathered on its loop, put together and written in a thread. It changes nothing."""
