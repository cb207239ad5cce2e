"""What a person sees of work that takes minutes."""

from cloc_jax.runtime import console


def test_progress_is_printed_where_there_is_no_bar(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.track("features", 100) as advance:
        for _ in range(10):
            now[0] += 10.0
            advance(10)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0].strip() for line in lines] == [
        "features: 30 of 100",
        "features: 60 of 100",
        "features: 90 of 100",
    ]
    assert "30 s so far, about 70 s left" in lines[0]
