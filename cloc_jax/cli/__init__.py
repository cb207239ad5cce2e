"""What launch.py starts: jobs, their flags and their settings."""
