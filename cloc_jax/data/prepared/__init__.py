"""Images prepared once and stored as ArrayRecord."""
