"""Training: from a configuration to a trained run, by one loop over stages."""
