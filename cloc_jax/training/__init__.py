"""The loop over stages and epochs, alone or for many runs as one program."""
