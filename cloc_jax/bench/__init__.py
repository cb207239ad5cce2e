"""What is timed, and what is compiled for hardware that is not here."""
