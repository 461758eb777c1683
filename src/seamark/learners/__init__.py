"""How weights improve."""
