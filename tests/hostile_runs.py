"""Runs whose names, in every place that takes one, try to be more than text.

`hostile_run` writes a finished run and its report. The same run with tame names has the
same elements and attributes, or a name got out of its place.
"""

import html.parser
import itertools
import re

from finished_runs import finished_run

from cloc_jax.report import html_page
from cloc_jax.runtime import files
from cloc_jax.scoring import metrics
from cloc_jax.scoring.decisions import Decision

NAMES = (
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><p style="position:fixed;inset:0">',
    "' style='position:fixed' onclick='window.hit=1",
    "<!-- <script> ",
    "</title></style></textarea></noscript><h1>",
    "<style>* { display: none }</style>",
    "DATA-OF-THE-RUN </script> { data }",
    "{{ 7 * 7 }}{% raw %}{# #}${7 * 7}%(json)s{0}",
    "__proto__ constructor toString",
    "javascript:window.hit=1//",
    "&lt;b&gt; &amp;lt; &#60;i&#62;",
    "]]><![CDATA[ <svg onload=window.hit=1>",
    "\\u003c/script\\u003e \\\" \\' `",
    "\u202e\u2028\u2029\ufeff\x1b[2J\x7f\t",
    "\udcff \x00\x01 \N{DOG FACE}",
    "",
)


def tame(name):
    """A name of the same length that is nothing but text."""
    return re.sub(r"[^a-z0-9 ]", "x", name)


def hostile_run(place, names=NAMES, change=str):
    """The path of the report of a run with these names, each one changed.

    They go round all that has a name: ranks, images, folders, notes and studies.
    """
    given = itertools.cycle(names)

    def name(role="", separators="\0"):
        found = f"{role}{next(given)}"
        return change("".join(c for c in found if c not in separators))

    ranks = [name(f"{i}", "\0|") for i in range(3)]
    in_path = [name("f", "\0/")[:60] for _ in range(2)]
    parent = place / in_path[0]
    boundaries = metrics.boundary_names(ranks)
    folder = finished_run(
        parent / in_path[1],
        ranks=ranks,
        critical=boundaries[:1],
        count=2 * len(names),
        shown=len(names),
        item=lambda split, i: name(f"{split}{i:02}"),
        pictures=(),
        dataset=name(),
        expect=name("e"),
        environment={"jax": name(), name("k"): "cpu"},
        config={"data": {"root": name(), "csv": name()}, "notes": name()},
    )
    decision = Decision(tuple(ranks), costs={boundaries[0]: (5.0, 1.0)})
    folder.write(folder.decision, decision.to_json())
    study = {
        "sentence": name(),
        "boundary": [name()],
        "columns": [name(), name()],
        "rows": [[name(), name()]],
        "notes": [name()],
        "command": name(),
    }
    for kind in ("control", "margins", "collapse"):
        files.write_sealed(parent / f"{kind}.json", study)
    return html_page.write_report(folder)


class Outline(html.parser.HTMLParser):
    """The elements of a page in their order, each with the names of its attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *(name for name, _ in attrs)))

    def handle_comment(self, data):
        self.found.append(("comment",))
