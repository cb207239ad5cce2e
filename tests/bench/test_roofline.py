"""The estimate: its arithmetic by hand, and what its picture shows."""

import pytest

from cloc_jax.bench import roofline, targets
from cloc_jax.bench.compiled_programs import Costs
from cloc_jax.bench.hlo_costs import Collective

FIGURES = targets.Figures(
    memory=1e9,
    float32=100.0,
    bfloat16=200.0,
    bandwidth=10.0,
    link=4.0,
    network=2.0,
    latency=0.5,
)
COSTS = Costs(
    trace_seconds=0.0,
    compile_seconds=0.0,
    arguments=0,
    outputs=0,
    temporaries=0,
    peak=0,
    flops=1000.0,
    bytes_accessed=60.0,
    collectives=[],
    kernels={},
    launches=0,
    casts={},
)


def target(groups=1, per_group=4):
    return targets.Target("h100", groups, per_group, "", FIGURES)


def test_computing_takes_the_longer_of_arithmetic_and_memory():
    in_float32 = roofline.estimate(COSTS, target(), "float32")
    assert in_float32 == roofline.Estimate(10.0, 6.0, 0.0)
    assert in_float32.computing == in_float32.step == 10.0
    in_bfloat16 = roofline.estimate(COSTS, target(), "bfloat16")
    assert in_bfloat16.computing == 6.0


@pytest.mark.parametrize(
    "kind, seconds",
    [
        ("all-reduce", 0.5 + 2 * 0.75 * 80 / 4),
        ("all-gather", 0.5 + 0.75 * 80 / 4),
        ("reduce-scatter", 0.5 + 0.75 * 80 / 4),
    ],
)
def test_a_ring_within_a_host(kind, seconds):
    assert roofline.communication(Collective(kind, 80, 4), target()) == seconds
    # 0 stands for all devices.
    assert roofline.communication(Collective(kind, 80, 0), target()) == seconds


def test_hosts_exchange_what_each_device_reduced():
    several = target(groups=2, per_group=4)
    found = roofline.communication(Collective("all-reduce", 80, 8), several)
    assert found == 0.5 + 2 * 0.75 * 80 / 4 + 2 * 0.5 * (80 / 4) / 2


def test_one_device_has_nobody_to_talk_to():
    assert roofline.communication(Collective("all-reduce", 80, 1), target()) == 0


def test_communication_is_added():
    costs = COSTS._replace(collectives=[Collective("all-gather", 80, 4)] * 2)
    found = roofline.estimate(costs, target(), "float32")
    assert found.communication == 31.0 and found.step == 41.0


def rows(fits=True):
    return [
        {
            "program": "step joint",
            "target": f"h100:{n}",
            "devices": n,
            "batch": 64,
            "fits": fits,
            "estimate": {
                "computing": 0.1 / n,
                "communication": 0.01 * (n > 1),
                "samples_per_second": 64 / (0.1 / n + 0.01 * (n > 1)),
            },
        }
        for n in (8, 1, 2)
    ]


def test_the_picture_calls_itself_an_estimate():
    figure = roofline.scaling_figure(rows())
    above, below = figure.axes
    assert above.get_title().startswith("Estimate for h100")
    assert "not a measurement" in figure.get_supxlabel()
    line, ideal = above.get_lines()
    assert list(line.get_xdata()) == [1, 2, 8]
    assert line.get_ydata()[0] == 640
    assert list(ideal.get_ydata()) == [640, 1280, 5120]
    computing, communication = below.get_lines()
    assert list(computing.get_xdata()) == [1, 2, 8]
    assert list(communication.get_xdata()) == [2, 8]


def test_what_does_not_fit_is_not_drawn():
    with pytest.raises(ValueError, match="no program fits"):
        roofline.scaling_figure(rows(fits=False))
