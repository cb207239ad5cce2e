"""Many runs of one experiment: plan, executors, summary, choice."""
