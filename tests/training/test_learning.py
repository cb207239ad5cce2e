"""Runs as a person starts them learn to grade images: far better than chance.

One method of each kind: margins and logits, binary tasks, probabilistic embeddings,
triples, and contrastive pretraining.
"""

import json

import numpy as np
import pytest
from launching import launched

SMALL = [
    "--config.data.num_train=600",
    "--config.data.num_val=100",
    "--config.data.num_test=200",
    "--config.data.size=(48, 48)",
    "--config.encoder.widths=(8, 16, 32, 32)",
    "--config.head.hidden=32",
    "--config.train.batch_size=20",
    "--config.train.max_epochs=10",
    "--config.optimizer.learning_rate=2e-3",
    # Few images are learned sooner as they are.
    *(
        f"--config.augment.{name}=0.0"
        for name in ("rotate_degrees", "translate", "scale")
    ),
    "--config.mesh.devices=1",
]
# Method -> its settings, and the least QWK on test images; guessing has 0.
LEARNED: dict[str, tuple[list[str], float]] = {
    "cloc": (["method.cloc.phases=1"], 0.4),
    "corn": ([], 0.4),
    "poe": ([], 0.2),
    "mwr": (["method.mwr.hidden=32"], 0.25),
    "supcon": (
        [
            "method.supcon.augment=default",
            "method.supcon.pretrain.name=adam",
            "method.supcon.pretrain.learning_rate=2e-3",
            "method.supcon.pretrain.epochs=25",
            "method.supcon.probe.learning_rate=0.1",
            "train.max_epochs=25",
        ],
        0.4,
    ),
}


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name == "cloc" else pytest.mark.slow)
        for name in LEARNED
    ],
)
def test_a_run_on_images_learns(method, tmp_path):
    settings, least = LEARNED[method]
    launched(
        *SMALL,
        f"--config.method.name={method}",
        *(f"--config.{setting}" for setting in settings),
        "--no-report",
        "--run=run",
        cwd=tmp_path,
    )
    results = json.loads((tmp_path / "run" / "metrics.json").read_text())
    test = results["final"]["test"]
    assert test["qwk"] > least
    # Better than any one rank for all images.
    ranks, counts = np.arange(5), np.array(list(test["true_counts"].values()))
    errors = [np.sum(counts * np.abs(ranks - one)) / test["count"] for one in ranks]
    assert test["mae"] < min(errors)
