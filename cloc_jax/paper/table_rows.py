"""The paper's tables: which runs stand in which row, and what the paper printed there.

A row names a setting of runs, a column a score of theirs. Both are plain names, so that
a page can be made from summaries of runs that are not here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cloc_jax.report import published

TABLES = {
    "comparison": "Methods compared",
    "controllability": "Controllability: learned against controlled margins",
    "bias": "Robustness to biased training labels",
    "ablations": "Ablations: margins and phases",
    "backbones": "Backbones",
    "classes": "Many classes",
    "time": "Training time",
    "collapse": "Margin collapse",
}
METHODS = {
    "orcnn": "ORCNN",
    "poe": "POE",
    "gol": "GOL",
    "mwr": "MWR",
    "rnc": "RnC",
    "simclr": "SimCLR",
    "supcon": "SupCon",
    "dino": "DINO",
    "cloc": "CLOC",
    "ce": "Cross-entropy",  # not in the paper
    "coral": "CORAL",
    "corn": "CORN",
    "sord": "SORD",
    "clm": "CLM",
}
COMPARED = tuple(METHODS)[:10]
# Methods that augment images in their own way unless told otherwise, so that kept views
# are of no use.
OWN_VIEWS = ("rnc", "simclr", "supcon", "dino")
BIASED = "biased "  # before the name of a setting: with biased training labels
CONTROLLED = "cloc controlled"  # the critical margins are fixed, others learned
BACKBONES = ("densenet121", "resnet50", "vgg16")
MANY_CLASSES = ("poe", "gol", "mwr", "cloc")
MANY = 8  # ranks from which on a dataset counts as one of many classes
COLLAPSE = "collapse "  # before the name of a setting of phase one alone
PRECAUTIONS = (
    "all precautions",
    "relu in place of softplus",
    "starts of 0.05 to 0.1",
    "no early stop",
    "none of them",
)
COLLAPSED = 0.02  # margins below this no longer hold ranks apart
PHASE_ONE, FINAL = "phase_one", "final"  # stages that runs are scored after
HOURS = "hours per 100 epochs"
SCORES = {"accuracy": "Accuracy", "mae": "MAE"}


class Place(NamedTuple):
    """A score of a setting's runs, and what the paper has for it."""

    setting: str
    score: str
    paper: float | None = None
    stage: str = FINAL
    is_quoted: bool = False


class Row(NamedTuple):
    """One line of a table."""

    title: str
    places: tuple[Place, ...]
    is_critical: bool = False


class Grid(NamedTuple):
    """One table for one dataset."""

    columns: tuple[str, ...]  # a title per place of a row
    rows: tuple[Row, ...]


def grid(
    table: str,
    dataset: str,
    *,
    ranks: Sequence[str],
    critical: Sequence[str],
    encoder: str,
    settings: Sequence[str],
    controlled: Mapping[str, str],
) -> Grid | None:
    """The rows of a table for a dataset; None where it has none.

    Args:
      table: of TABLES.
      dataset: its name.
      ranks: of the dataset; () where it is absent.
      critical: boundaries that matter, such as "1|2".
      encoder: that most runs have.
      settings: names of the settings that have runs.
      controlled: the setting whose margins are controlled, of all that were tried, by
        "" and BIASED.
    """
    has_paper = dataset in published.DATASETS
    if table == "comparison":
        return _comparison(dataset, settings) if has_paper or settings else None
    if table == "controllability":
        return _controllability(dataset, ranks, critical, controlled)
    if table == "bias":
        return _bias(dataset, settings, controlled)
    if table == "ablations":
        return _ablations(dataset) if has_paper or settings else None
    if table == "backbones":
        return _backbones(dataset, encoder, settings)
    if table == "classes":
        return _classes(dataset, ranks, settings)
    if table == "time":
        return _time(dataset, settings)
    return None  # margin collapse has no scores


def _scored(setting: str, paper: Mapping[str, Any], **more: Any) -> tuple[Place, ...]:
    """Accuracy and MAE."""
    return tuple(Place(setting, score, paper.get(score), **more) for score in SCORES)


def _comparison(dataset: str, settings: Sequence[str]) -> Grid:
    printed = published.tables()["comparison"]
    rows = []
    for method, title in METHODS.items():
        paper = {s: v.get(dataset) for s, v in printed.get(method, {}).items()}
        if method in COMPARED or method in settings:
            quoted = published.is_quoted(method, dataset)
            rows.append(Row(title, _scored(method, paper, is_quoted=quoted)))
    return Grid(tuple(SCORES.values()), tuple(rows))


def _controllability(
    dataset: str,
    ranks: Sequence[str],
    critical: Sequence[str],
    controlled: Mapping[str, str],
) -> Grid | None:
    paper = published.of_dataset(dataset) if dataset in published.DATASETS else None
    printed = paper.control if paper else None
    count = len(ranks) - 1 if ranks else len(printed.learned) if printed else 0
    if count < 1 or (not printed and not critical):
        return None
    if printed and len(printed.learned) != count:
        printed = None
    names = [f"{a}|{b}" for a, b in zip(ranks, ranks[1:], strict=False)]
    names = names or [f"C{h + 1}|C{h + 2}" for h in range(count)]
    raised = printed.critical if printed else ()
    second = controlled.get("", CONTROLLED)
    rows = [
        Row(
            name,
            (
                Place("cloc", f"error {name}", printed.learned[h] if printed else None),
                Place(
                    second, f"error {name}", printed.controlled[h] if printed else None
                ),
            ),
            is_critical=name in critical or h in raised,
        )
        for h, name in enumerate(names)
    ]
    overall = (
        Place("cloc", "accuracy", printed.learned_accuracy if printed else None),
        Place(second, "accuracy", printed.controlled_accuracy if printed else None),
    )
    rows.append(Row("Accuracy", overall))
    return Grid(("Learned margins", "Controlled margins"), tuple(rows))


def _bias(
    dataset: str, settings: Sequence[str], controlled: Mapping[str, str]
) -> Grid | None:
    printed = published.tables()["biased_idrid"] if dataset == "idrid" else {}
    if not printed and not any(name.startswith(BIASED) for name in settings):
        return None
    rows = []
    for method, title in METHODS.items():
        name = BIASED + method
        if method == "cloc" or not (method in printed or name in settings):
            continue
        rows.append(Row(title, _scored(name, printed.get(method, {}))))
    second = controlled.get(BIASED, BIASED + CONTROLLED)
    learned, fixed = (printed.get(f"cloc_{kind}", {}) for kind in ("learned", "fixed"))
    rows += [
        Row("CLOC, learned margins", _scored(f"{BIASED}cloc", learned)),
        Row("CLOC, critical margin fixed", _scored(second, fixed)),
    ]
    return Grid(tuple(SCORES.values()), tuple(rows))


def _ablations(dataset: str) -> Grid:
    printed = published.tables()["ablation"]
    rows = []
    for key, title, setting, stage in (
        ("ones/phase2", "All margins 1, both phases", "cloc ones", FINAL),
        ("shared/phase1", "Shared margin, phase one", "cloc shared", PHASE_ONE),
        ("shared/phase2", "Shared margin, both phases", "cloc shared", FINAL),
        ("multi/phase1", "Own margins, phase one", "cloc", PHASE_ONE),
        ("multi/phase2", "Own margins, both phases", "cloc", FINAL),
    ):
        paper = {score: values.get(dataset) for score, values in printed[key].items()}
        rows.append(Row(title, _scored(setting, paper, stage=stage)))
    return Grid(tuple(SCORES.values()), tuple(rows))


def backbone_setting(name: str, encoder: str) -> str:
    """The setting of CLOC on a backbone, where most runs have `encoder`."""
    return "cloc" if name == encoder else f"cloc on {name}"


def _backbones(dataset: str, encoder: str, settings: Sequence[str]) -> Grid | None:
    printed = published.tables()["backbones_idrid"] if dataset == "idrid" else {}
    # The name of a setting counts: those on the usual encoder may be missing.
    names = [
        own
        if (own := f"cloc on {name}") in settings
        else backbone_setting(name, encoder)
        for name in BACKBONES
    ]
    if not printed and not any(n in settings for n in names if n != "cloc"):
        return None
    titles = {"densenet121": "DenseNet-121", "resnet50": "ResNet-50", "vgg16": "VGG16"}
    rows = [
        Row(titles[name], _scored(setting, printed.get(name, {})))
        for name, setting in zip(BACKBONES, names, strict=True)
    ]
    return Grid(tuple(SCORES.values()), tuple(rows))


def bin_setting(years: int) -> str:
    """The setting of CLOC on CLAP2015 with classes of that many years."""
    return "cloc" if years == 3 else f"cloc bin {years}"


def _classes(
    dataset: str, ranks: Sequence[str], settings: Sequence[str]
) -> Grid | None:
    if dataset == "clap2015":
        rows = [
            Row(
                f"CLOC, {row['classes']} classes of {row['bin']} "
                f"{'year' if row['bin'] == 1 else 'years'}",
                (Place(bin_setting(row["bin"]), "mae", row["mae"]),),
            )
            for row in published.tables()["clap2015_bins"]
        ]
        printed = published.tables()["clap2015_bin3"]
        rows += [
            Row(f"{METHODS[m]}, classes of 3 years", (Place(m, "mae", printed[m]),))
            for m in MANY_CLASSES[:-1]
        ]
        return Grid(("MAE in classes",), tuple(rows))
    if len(ranks) < MANY or "cloc" not in settings:
        return None
    rows = [
        Row(f"{METHODS[m]}, {len(ranks)} classes", (Place(m, "mae"),))
        for m in MANY_CLASSES
    ]
    return Grid(("MAE in classes",), tuple(rows))


def _time(dataset: str, settings: Sequence[str]) -> Grid | None:
    printed = (
        published.tables()["hours_100_epochs_idrid_rtx4090"]
        if dataset == "idrid"
        else {}
    )
    if not printed and not any(m in settings for m in METHODS):
        return None
    rows = [
        Row(title, (Place(method, HOURS, printed.get(method)),))
        for method, title in METHODS.items()
        if method in printed or method in settings or method in COMPARED
    ]
    for stage, key in (("phase one", "cloc_phase1"), ("phase two", "cloc_phase2")):
        place = Place("cloc", HOURS, printed.get(key), stage=stage)
        rows.append(Row(f"CLOC, {stage}", (place,)))
    return Grid(("Hours per 100 epochs",), tuple(rows))
