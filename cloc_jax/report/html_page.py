"""A run folder as one HTML page that a person can open, print and send.

What it says is there without scripts; where a browser runs them, curves are drawn,
decisions can be moved and images looked through. page/ has the templates, styles and
scripts; uPlot draws the curves and comes with its licence. The page's content security
policy lets these scripts run, known by their hash, and nothing be loaded.
"""

import base64
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jinja2
import markupsafe

from cloc_jax.report import page_data
from cloc_jax.report import view as views
from cloc_jax.runtime import files
from cloc_jax.runtime.errors import printable
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring.results import RunResults

NAME = "report.html"
FOLDER = pathlib.Path(__file__).parent / "page"
SCRIPTS = (
    "scores.js",
    "run_data.js",
    "plots.js",
    "enlarged.js",
    "image_table.js",
    "deciding.js",
    "start.js",
)
PLACE = "DATA-OF-THE-RUN"  # in the page, until the data are put there
MOST_BYTES = 9_500_000  # of the page; thumbnails are left out to stay below


def write_report(folder: RunFolder, results: RunResults | None = None) -> pathlib.Path:
    """Writes `report.html` into the run's folder and returns its path.

    Reads nothing but files of that folder, and the studies of the margins that lie in
    it or beside it. Where a file is missing, the page says so in its place, except
    for `metrics.json`: it must be there, unless `results` has what it would hold.
    Images have thumbnails as far as the page stays below MOST_BYTES.
    """
    view = views.View.read(folder, results)
    data = page_data.build(view)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str | None]] = {
        "percent": views.percent,
        "number": views.number,
        "seconds": views.duration,
        "interval": views.interval,
    }
    environment.filters |= filters
    page = environment.get_template("page.html.jinja").render(
        view=view,
        results=view.results,
        data=data,
        moved=page_data.moved_boundaries(view),
        parts=_read_parts(),
    )
    path = folder.path / NAME
    whole = _with_data(printable(page), data, view.thumbnails or {})
    files.write_text(path, whole)
    return path


class _Parts(NamedTuple):
    """What the template puts into the page as it is."""

    css: markupsafe.Markup
    script: markupsafe.Markup
    policy: str  # of content security
    place: str = PLACE


def _read_parts() -> _Parts:
    css = _text("uPlot.min.css") + "\n" + _text("page.css")
    own = "\n".join(_text(name) for name in SCRIPTS)
    script = (
        f"/*!\nuPlot\n\n{_text('uPlot.LICENSE')}\n*/\n{_text('uPlot.iife.min.js')}\n"
        f'(() => {{\n"use strict";\n{own}\n}})();\n'
    )
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{mark}'; "
        "style-src 'unsafe-inline'; img-src data:"
    )
    return _Parts(markupsafe.Markup(css), markupsafe.Markup(script), policy)


def _with_data(page: str, data: dict[str, Any], pictures: Mapping[str, bytes]) -> str:
    """The page with its data, and with as many thumbnails as there is room for.

    Args:
      page: with PLACE where the data go.
      data: for the scripts, see `page_data`.
      pictures: JPEGs by image, the most wanted first.
    """
    before, _, after = page.partition(PLACE)
    room = MOST_BYTES - len(page.encode()) - len(_json(data))
    places = {}
    if data["images"]:
        places = {name: i for i, name in enumerate(data["images"]["names"])}
    kept: dict[int, str] = {}
    for name, picture in pictures.items():
        if name not in places:
            continue
        text = base64.b64encode(picture).decode()
        room -= len(text) + 12  # with its key and marks
        if room < 0:
            break
        kept[places[name]] = text
    return before + _json(data | {"thumbnails": kept}) + after


def _json(value: Any) -> str:
    """JSON that cannot end the element it is in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()
