"""The paper's tables: their runs, summaries of these, and the page."""
