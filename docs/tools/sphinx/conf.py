"""How Sphinx makes the site. `make site` gives it the copies that docs/tools/site.py has written."""

import os
from typing import Any

from pygments.lexers.special import TextLexer

project = "lb_stream"
release = version = os.environ["LB_SITE_VERSION"]
html_title = project
extensions = ["myst_parser"]
root_doc = "index"
language = "en"

myst_heading_anchors = 4
"""Headings down to this level can be linked to, by the fragments that forges make."""
smartquotes = False
"""Quotation marks in prose may be those of a command."""

html_theme = "furo"
html_static_path = ["static"]
templates_path = ["templates"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}


def setup(app: Any) -> None:
    """Show scenarios, a format of this project's own, as plain text."""
    app.add_lexer("scenario", TextLexer)
