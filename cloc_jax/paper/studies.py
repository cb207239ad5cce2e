"""What the studies share: typed answers, the training of their runs, and their end.

A study names the settings it compares, trains each of them with several seeds as a
sweep does, reads what the runs wrote and leaves one JSON file, its pictures and, in the
report of its first run, an answer. Like a sweep it goes on where it was interrupted.
"""

import dataclasses
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder

if TYPE_CHECKING:  # who reads a study needs no code that trains runs
    from ml_collections import ConfigDict

    from cloc_jax.sweeps.executors import Options, Plan
    from cloc_jax.sweeps.sweep import Setting

REMEDY = "Move it away, or repeat the study."
KINDS = ("control", "margins", "collapse")  # studies, by the names of files
KEPT = "studies.json"  # evidence of several studies


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What a study says about a claim."""

    claim: str  # of `published.CLAIMS`
    tried: str
    found: str
    verdict: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What every study says of its runs, and what people read of it."""

    command: str
    dataset: str
    size: tuple[int, ...]
    encoder: str
    is_frozen: bool
    trainable_from: str
    seeds: int
    sentence: str = ""
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    evidence: tuple[Evidence, ...] = ()


@dataclasses.dataclass(frozen=True)
class KeptStudies:
    """What is left of studies whose own files are not here."""

    studies: tuple[Study, ...]


# --- runs ---


def command() -> str:
    """The command line that is running: the job first, without where it writes, and
    with folders of this machine shortened."""
    words = [re.sub(r"=/.*/", "=…/", w) for w in sys.argv[1:] if "--run=" not in w]
    words.sort(key=lambda word: word.startswith("-"))
    quoted = [f'"{w}"' if re.search("[|>()'; ]", w) else w for w in words]
    return " ".join(["python launch.py", *quoted])


def about(first: "Plan") -> dict[str, Any]:
    """What the runs of a study were: some fields of `Study`."""
    data, encoder = first.config.data, first.config.encoder
    return {
        "command": command(),
        "dataset": data.name,
        "size": tuple(data.size),
        "encoder": encoder.name,
        "is_frozen": encoder.frozen,
        "trainable_from": encoder.trainable_from,
    }


class Runs(NamedTuple):
    """The runs of a study: what they have in common, where they are, how they train."""

    config: "ConfigDict"
    folder: pathlib.Path
    seeds: int
    options: "Options"

    def train(self, settings: "Sequence[Setting]") -> "dict[str, list[Plan]]":
        """Trains and scores the runs that are not finished; all of them by setting.

        They are of CLOC, as other methods have no margins.
        """
        from cloc_jax.sweeps import sweep
        from cloc_jax.training import encoder

        if self.config.method.name != "cloc":
            raise ValueError(
                f"method.name is {self.config.method.name!r}, which has no margins; "
                "use cloc. Any method can be steered by `launch.py decide`."
            )
        plans = sweep.plan_runs(self.config, settings, seeds=self.seeds)
        sweep.train_runs(plans, self.folder, self.options)
        by_setting: dict[str, list[Plan]] = {}
        for one in plans:
            if not RunFolder(self.folder / one.name).metrics.exists():
                raise ValueError(
                    f"the run {self.folder / one.name} did not finish, so the study "
                    "has no answer yet; what it printed above says why."
                )
            # What the weights decide is filled in, as training did it.
            own = one._replace(config=encoder.resolve(one.config))
            by_setting.setdefault(one.setting, []).append(own)
        return by_setting

    def finish(
        self,
        name: str,
        study: Study,
        first: "Plan",
        draw: Callable[[pathlib.Path, Mapping[str, Any]], None],
    ) -> None:
        """Writes a study, its picture, and the report of its first run, which shows it.

        `name` is one of KINDS; `draw` takes the study as plain data.
        """
        from cloc_jax.report import evaluation

        plain = files.to_plain(study)
        draw(self.folder / f"{name}.png", plain)
        files.write_sealed(self.folder / f"{name}.json", plain)
        evaluation.evaluate(first.config, RunFolder(self.folder / first.name))
        for text in (study.sentence, *study.notes):
            console.print(text, soft_wrap=True)
        console.print(f"written to {self.folder / f'{name}.json'}", soft_wrap=True)
