"""Questions that many runs answer together."""
