"""How a worker joins the masters, stays known to them, and leaves."""
