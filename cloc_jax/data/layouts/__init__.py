"""What lies where after the official download: one file per dataset.

Each has `scan(root, …) -> Listing`, which reads names and labels, never pixels, and
writes nothing. What becomes of the listing is the same for all: see `preparation`,
`splits` and `datasets`.
"""
