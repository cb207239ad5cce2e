"""From a configuration to the parts of a run, with all checks."""
