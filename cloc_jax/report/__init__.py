"""The page of a finished run, and its pictures."""
