"""The recipes of the methods' authors, one file per method."""
