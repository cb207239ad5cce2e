"""What runs need whatever they train: folders, devices, processes, the console."""
