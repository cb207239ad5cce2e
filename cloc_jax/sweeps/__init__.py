"""Many runs of one experiment: sweep, executors."""
