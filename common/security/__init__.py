"""Who may do what: tokens, certificates, and what a client shows of itself. docs/operate/security.md has the whole."""
