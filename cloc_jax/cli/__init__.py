"""What launch.py starts, one module per job."""
