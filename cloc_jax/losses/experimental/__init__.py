"""Forms of the loss that have not run on the hardware they are for."""
