"""Small samples: what is covered, and how sharply, where people start."""
