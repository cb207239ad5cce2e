"""What is timed, and the rivals it is timed against."""
