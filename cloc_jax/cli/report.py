"""The page of a finished run, drawn again from its files."""

from cloc_jax.report import html_page
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder


def report(folder: RunFolder) -> None:
    """Writes report.html, without the run's images or its model."""
    page = html_page.write_report(folder)
    console.print(f"report  {page}", soft_wrap=True)
