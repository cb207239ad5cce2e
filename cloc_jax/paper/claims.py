"""The paper's claims beside what runs here found, as one page.

Every study leaves a JSON file. This reads all of them below a folder and writes a
table: each claim, what was tried with which command, data and seeds, the figures with
their intervals, and a verdict by a fixed rule.
"""

import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cloc_jax.paper import table_evidence, true_gaps
from cloc_jax.paper.control import ENTROPY, LEARNED
from cloc_jax.paper.table_rows import METHODS
from cloc_jax.paper.tables import summaries
from cloc_jax.paper.verdicts import FAILS, HOLDS, OPEN, Evidence, of_interval, signed
from cloc_jax.runtime import files

# How a page begins, by which it is known when it is written again.
TITLE = "# Claims"
WRITTEN_BY = "Written by `python launch.py claims`"
UNTESTED = "not tested"
REMEDY = "Move it away, or repeat the study."
# What every study has.
SHARED = ("command", "dataset", "size", "is_frozen", "seeds", "sentence")
DATASETS = {
    "synthetic": "drawn knees",
    "koa": "KOA",
    "idrid": "IDRiD",
    "retinamnist": "RetinaMNIST",
}


class Claim(NamedTuple):
    """Something the paper says, in our words."""

    text: str
    where: str  # in the paper
    finds: tuple[Callable[[str, Mapping[str, Any]], Iterator[Evidence]], ...]
    why_not: str = ""  # where nothing tested it


def _lower_errors(rate: str, is_biased: bool) -> Callable:
    """Learned margins against the value above them that validation chose."""

    def find(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
        if kind != "control" or bool(study["relabel"]) != is_biased:
            return
        for boundary, verdict in study["verdicts"].items():
            name = verdict["setting"]
            if verdict["margin"] <= verdict["learned"]:
                continue  # nothing was raised
            score = study["settings"][name]["scores"][f"{boundary} {rate}"]
            before = study["settings"][LEARNED]["scores"][f"{boundary} {rate}"]["mean"]
            yield Evidence(
                f"{boundary}, from {verdict['learned']:.2f} to {verdict['margin']:.2f}",
                f"{before:.3f} → {score['mean']:.3f}, difference "
                f"{signed(score['difference'], score['difference_interval'])}",
                of_interval(score["difference_interval"], is_lower_better=True),
            )

    return find


def _more_accurate(first: str, second: str, is_biased: bool) -> Callable:
    """Accuracy of two settings of a control study; `first` is the better by claim."""

    def find(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
        if kind != "control" or bool(study["relabel"]) != is_biased:
            return
        chosen = next(iter(study["verdicts"].values()))["setting"]
        names = [chosen if name == "fixed" else name for name in (first, second)]
        scores = [study["settings"][name]["scores"]["accuracy"] for name in names]
        # Intervals are kept for differences to the learned runs.
        sign, other = (1, scores[0]) if second == LEARNED else (-1, scores[1])
        ends = sorted(sign * end for end in other["difference_interval"])
        yield Evidence(
            f"{names[0]} against {names[1]}",
            f"accuracy {scores[0]['mean']:.3f} against {scores[1]['mean']:.3f}, "
            f"difference {signed(sign * other['difference'], ends)}",
            of_interval(ends, is_lower_better=False),
        )

    return find


def _separability(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
    if kind != "margins":
        return
    for key, what in (
        ("true_gaps_correlation", "true gaps"),
        ("separability_correlation", "AUC of a linear probe"),
    ):
        found = study.get(key)
        if found and found["value"] is not None:
            is_sure = found["p"] <= 0.05
            verdict = (HOLDS if found["value"] > 0 else FAILS) if is_sure else OPEN
            yield Evidence(
                f"learned margins (by {study['optimizer']}) and {what}",
                f"rank correlation {found['value']:+.2f}, p = {found['p']:.2f}",
                verdict,
            )


def _differences(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
    if kind == "margins":
        real = len(study["real"])
        yield Evidence(
            f"{study['draws']} permutations, all pairs at once, margins by "
            f"{study['optimizer']}",
            study["sentence"],
            HOLDS if real else FAILS,
        )


def _precautions(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
    if kind == "collapse":
        found = study["settings"]
        kept, lost = (
            found[n]["collapsed"] for n in ("all precautions", "none of them")
        )
        verdict = HOLDS if kept < lost else (FAILS if lost else OPEN)
        yield Evidence("phase one", study["sentence"], verdict)


def _true_gaps(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
    """Each method's learned values against their own truth and permuted labels."""
    if kind != "gaps":
        return
    for name, found in study["settings"].items():
        sure = [found[f"{key}_p"] <= 0.05 for key in ("correlation", "share_error")]
        yield Evidence(
            f"{name}: {true_gaps.WHAT[name]} and true {true_gaps.TRUTH[name]}, "
            f"{study['draws']} permutations",
            f"rank correlation {found['correlation']:+.2f}, error of shares "
            f"{found['share_error']:.3f} (equal ones: 1); with "
            "the seeds of the permutations "
            f"{found['matched_correlation']:+.2f}, permuted labels "
            f"{found['null_correlation']:+.2f} (p = {found['correlation_p']:.2f}), and "
            f"{found['matched_share_error']:.3f}, permuted labels "
            f"{found['null_share_error']:.3f} (p = {found['share_error_p']:.2f})",
            HOLDS if all(sure) else (OPEN if any(sure) else FAILS),
        )


def _closer_gaps(kind: str, study: Mapping[str, Any]) -> Iterator[Evidence]:
    """CLM's gaps against CLOC's margins, by how far their shares are off."""
    if kind != "gaps":
        return
    settings = study["settings"]
    for name, found in study["compared"].items():
        ends = found["difference_interval"]
        yield Evidence(
            f"{true_gaps.CLM} against {name}",
            f"error of shares {settings[true_gaps.CLM]['share_error']:.3f} against "
            f"{settings[name]['share_error']:.3f}, difference "
            f"{signed(found['difference'], ends)}",
            of_interval(ends, is_lower_better=True),
        )


_RIVALS = tuple(method for method in METHODS if method not in ("cloc", "ce"))
CLAIMS = (
    Claim(
        "CLOC outperforms existing methods for ordinal classification.",
        "Abstract, Table 1",
        (table_evidence.outperforms(_RIVALS),),
    ),
    Claim(
        "A larger margin fixed at a critical boundary lowers the share of neighbours "
        "mistaken for each other there.",
        "Abstract (controllability), Table 2",
        (
            _lower_errors("error_rate", is_biased=False),
            table_evidence.lower_errors("error", is_biased=False),
        ),
    ),
    Claim(
        "The same, counting every image on the wrong side of the boundary.",
        "our reading; the paper counts neighbours only",
        (
            _lower_errors("crossing_rate", is_biased=False),
            table_evidence.lower_errors("crossing", is_biased=False),
        ),
    ),
    Claim(
        "CLOC with learned margins is more accurate than cross-entropy.",
        "not asked there; Table 1 has no cross-entropy",
        (
            _more_accurate(LEARNED, ENTROPY, is_biased=False),
            table_evidence.outperforms(("ce",)),
        ),
    ),
    Claim(
        "Trained on biased labels, CLOC is more accurate than other methods.",
        "Abstract (less overfitting to biases), Robustness to biases",
        (table_evidence.outperforms((*_RIVALS, "ce"), is_biased=True),),
    ),
    Claim(
        "With biased training labels a fixed critical margin is more accurate than "
        "learned margins.",
        "Robustness to biases",
        (
            _more_accurate("fixed", LEARNED, is_biased=True),
            table_evidence.fixed_is_better,
        ),
    ),
    Claim(
        "With biased training labels it makes fewer errors at that boundary.",
        "Robustness to biases",
        (
            _lower_errors("crossing_rate", is_biased=True),
            table_evidence.lower_errors("crossing", is_biased=True),
        ),
    ),
    Claim(
        "A margin for each boundary is better than one for all, learned or 1.",
        "Ablations",
        (table_evidence.margins_matter,),
    ),
    Claim(
        "Phase two, with frozen margins, improves on phase one.",
        "Ablations",
        (table_evidence.phases_matter,),
    ),
    Claim(
        "Learned margins differ from boundary to boundary because of the data.",
        "Abstract (interpretability)",
        (_differences,),
    ),
    Claim(
        "Learned margins tell how separable neighbouring ranks are.",
        "Abstract (interpretability), Discussion",
        (_separability,),
    ),
    Claim(
        "What is learned about the distance of ranks follows the true gaps, and not "
        "only the sizes of the ranks.",
        "not asked there; on drawn knees the truth is known",
        (_true_gaps,),
    ),
    Claim(
        "Gaps between the thresholds of a cumulative link model are closer to the true "
        "ones than CLOC's margins.",
        "not asked there; on drawn knees the truth is known. Errors are multiples of "
        "what equal shares would err by, a scale that was chosen after plain errors "
        "had shown no difference here: three widths and four gaps are not comparable "
        "without it. Where permuted labels give the same, neither follows more than "
        "the sizes of the ranks",
        (_closer_gaps,),
    ),
    Claim(
        "Softplus, starts in [0.5, 1) and an early stop keep margins from collapsing.",
        "Figure on precautions",
        (_precautions,),
    ),
    Claim(
        "CLOC outperforms other methods where the whole network is trained.",
        "Tables 1 and 2",
        (table_evidence.outperforms((*_RIVALS, "ce"), is_whole=True),),
        "needs a GPU for its many runs; above, encoders are frozen or trained in part",
    ),
)


def write_claims(
    folder: pathlib.Path, target: pathlib.Path, *, add: bool = False
) -> int:
    """Writes the page from all studies below a folder; returns how many there were.

    With `add`, rows that the page has from other commands stay.
    """
    studies = [
        (kind, files.read_sealed(path, remedy=REMEDY, fields=SHARED))
        for kind in ("control", "margins", "gaps", "collapse")
        for path in sorted(folder.rglob(f"{kind}.json"))
    ]
    studies += [
        (table_evidence.KIND, table_evidence.as_study(summary))
        for summary in summaries.below(folder)
    ]
    if not studies:
        raise FileNotFoundError(
            f"{folder} holds no study; run `launch.py control`, `margins`, `gaps`, "
            "`collapse` or `tables` first, or give --run= the folder above them."
        )
    _check_target(target, must_exist=add)
    page = _read_page(target.read_text(encoding="utf-8")) if add else Page({}, [])
    newest = [command for _, study in studies for command in _commands(study)]
    rows = {}
    for claim in CLAIMS:
        before = page.rows.get(claim.text, ())
        kept = [row for row in before if not set(row.commands) & set(newest)]
        rows[claim.text] = kept + _rows(claim, studies)
    cited = {c for of_claim in rows.values() for row in of_claim for c in row.commands}
    commands = dict.fromkeys(c for c in [*page.commands, *newest] if c in cited)
    text = _page(Page(rows, list(commands)))
    files.write_text(target, text)
    return len(studies)


def _check_target(target: pathlib.Path, *, must_exist: bool) -> None:
    """OSError for a file that `claims` did not write."""
    if not target.exists():
        if must_exist:
            raise FileNotFoundError(f"there is no page {target} to add to.")
        return
    begin = f"{TITLE}\n\n{WRITTEN_BY}".encode()
    try:
        with files.open_regular(target) as file:
            is_ours = file.read(len(begin)) == begin
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        raise FileExistsError(
            f"--to={target} exists and is no page that `claims` wrote; give another "
            "name or move it away."
        )


class Row(NamedTuple):
    """A row of a claim's table."""

    cells: tuple[str, ...]  # as they are written, without the commands
    commands: tuple[str, ...]


class Page(NamedTuple):
    """What there is to write, besides the claims themselves."""

    rows: Mapping[str, Sequence[Row]]  # by the text of the claim
    commands: Sequence[str]  # in the order of their numbers


HEAD = ("Data", "Seeds", "Tried", "Found", "Verdict", "Command")


def _rows(claim: Claim, studies: list[tuple[str, dict[str, Any]]]) -> list[Row]:
    """What the studies say about a claim."""
    return [
        Row(
            tuple(_cell(c) for c in (_data(study), study["seeds"], *evidence[:3])),
            _commands(study, evidence.runs),
        )
        for kind, study in studies
        for find in claim.finds
        for evidence in find(kind, study)
    ]


def _commands(study: Mapping[str, Any], runs: Sequence[str] = ()) -> tuple[str, ...]:
    """Those that made a study, or some settings of it; tables may come from several."""
    everything = study.get("commands") or [study["command"]]
    found = [
        command
        for name in runs
        for command in study["settings"][name].get("commands", everything)
    ]
    return tuple(dict.fromkeys(found or everything))


def _read_page(text: str) -> Page:
    """A page that was written before."""
    *sections, listed = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    commands = dict(re.findall(r"^(\d+)\. `(.*)`$", listed, flags=re.MULTILINE))
    found: dict[str, list[Row]] = {}
    for section in sections:
        title, *lines = section.splitlines()
        found[title] = []
        for line in [line for line in lines if line.startswith("| ")][1:]:
            *cells, numbers = re.split(r"(?<!\\) \| ", line[2:-2])
            of_row = tuple(commands[n] for n in re.findall(r"\d+", numbers))
            found[title].append(Row(tuple(cells), of_row))
    return Page(found, list(commands.values()))


def _page(page: Page) -> str:
    lines = [
        TITLE,
        "",
        f"{WRITTEN_BY} from the studies' JSON files; every figure is theirs.",
        "",
        f'Verdicts: "{HOLDS}" where the 95% interval (or p <= 0.05) lies on the '
        f'claimed side, "{FAILS}" where on the other, "{OPEN}" where it holds both.',
        "",
    ]
    numbers = {text: n for n, text in enumerate(page.commands, 1)}
    for claim in CLAIMS:
        lines += [f"## {claim.text}", "", f"Paper: {claim.where}.", ""]
        rows = page.rows[claim.text]
        written = [
            (*row.cells, ", ".join(f"[{numbers[c]}]" for c in row.commands))
            for row in rows
        ]
        if written:
            head, *others = (f"| {' | '.join(cells)} |" for cells in (HEAD, *written))
            lines += [head, "|" + "---|" * len(HEAD), *others, ""]
        else:
            lines += [
                f"{UNTESTED.capitalize()}{claim.why_not and ': '}{claim.why_not}.",
                "",
            ]
    lines += ["## Commands", ""]
    lines += [f"{n}. `{text}`" for text, n in numbers.items()]
    return "\n".join(lines) + "\n"


def _data(study: Mapping[str, Any]) -> str:
    name = DATASETS.get(study["dataset"], study["dataset"])
    size = "x".join(map(str, study["size"]))
    return f"{name}, {size}, {_encoder(study)}"


def _encoder(study: Mapping[str, Any]) -> str:
    """Which encoder it was, and what of it was trained."""
    if study["is_frozen"]:
        return f"frozen {study['encoder']}"
    start = study.get("trainable_from")
    if start is None:  # studies of earlier versions do not say
        return study["encoder"]
    return f"{study['encoder']} trained {f'from {start} on' if start else 'whole'}"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|")
