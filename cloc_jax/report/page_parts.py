"""Styles and scripts of the page, put into it so that it stays one file.

The scripts are plain files in page/, in the order of SCRIPTS; uPlot draws the plots and
comes with its licence. The page's content security policy lets these scripts run, known
by their hash, and nothing be loaded.
"""

import base64
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import markupsafe

FOLDER = pathlib.Path(__file__).parent / "page"
SCRIPTS = (
    "rule.js",
    "run_data.js",
    "plots.js",
    "enlarged.js",
    "image_table.js",
    "deciding.js",
    "start.js",
)
PLACE = "DATA-OF-THE-RUN"  # in the page, until the data are put there
MOST_BYTES = 9_500_000  # of the page; thumbnails are left out to stay below


class Parts(NamedTuple):
    """What the template puts into the page as it is."""

    css: markupsafe.Markup
    script: markupsafe.Markup
    policy: str  # of content security


def read() -> Parts:
    """The parts of the page."""
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
    return Parts(markupsafe.Markup(css), markupsafe.Markup(script), policy)


def with_data(page: str, data: dict[str, Any], pictures: Mapping[str, bytes]) -> str:
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


def jpeg_uri(picture: bytes | None) -> str | None:
    """A JPEG as a data URI."""
    if picture is None:
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"


def _json(value: Any) -> str:
    """JSON that cannot end the element it is in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()
