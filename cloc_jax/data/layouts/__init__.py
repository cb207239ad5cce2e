"""What lies where, in folders of one's own and after the official downloads.

Every layout has a `scan(root, …) -> Listing`, which reads names and labels, never
pixels, and writes nothing. What becomes of the listing is the same for all.
"""
