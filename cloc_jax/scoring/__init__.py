"""From a trained model to numbers: predictions, metrics, intervals, decisions."""
