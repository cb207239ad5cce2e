"""Data: from folders of images, or drawn ones, to batches on the device."""
