"""The demo: what ``lvd demo`` computes and draws."""
