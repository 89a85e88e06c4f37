"""The page: one HTML file with everything inside, which may run its own two scripts, load nothing and send nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

Part = tuple[str, str, str]
"""An id, a heading and the HTML below it."""

_DRAW = """
document.querySelectorAll(".plot").forEach(function (place) {
  var figure = JSON.parse(place.nextElementSibling.textContent);
  Plotly.newPlot(place, figure.data, figure.layout, {displayModeBar: false, responsive: true});
});
"""

_STYLE = """
:root { color-scheme: light; --ink: #222; --quiet: #595959; --line: #d8d8d8; --ground: #f6f7f8; --link: #00598c; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; color: var(--ink); background: #fff;
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header, nav, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.45rem; margin: 3rem 0 1rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h4, h5, h6 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p, ul, ol, figcaption { max-width: 50rem; }
a[href] { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav ol { padding-left: 1.4rem; columns: 20rem; }
figure { margin: 1.5rem 0; padding: 1rem; border: 1px solid var(--line); border-radius: 6px; }
figcaption { margin-top: .75rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.plot { width: 100%; min-width: 40rem; overflow: hidden; }
figure > .scroll { margin: 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line);
         min-width: 4rem; max-width: 40rem; }
thead th { border-bottom: 2px solid var(--ink); white-space: nowrap; }
tbody th { font-weight: 500; }
.tight th, .tight td { white-space: nowrap; max-width: none; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--link); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--ground); padding: .75rem 1rem; border-radius: 6px;
      font: .85rem/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; margin: .5rem 0; }
code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .9em; }
pre.error { border-left: 4px solid #b00020; }
details.code { font-size: .85rem; margin: .25rem 0; }
img { max-width: 100%; height: auto; }
.quiet { color: var(--quiet); }
.mark { font-size: .8rem; font-weight: 600; padding: .1rem .5rem; border: 1px solid; color: #8a4b00; border-radius: 4px;
        white-space: nowrap; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
footer { padding: 2rem 1.5rem 3rem; }
@media print { .scroll { overflow: visible; } figure { break-inside: avoid; } }
"""


def page(title: str, lead: str, parts: Sequence[Part]) -> str:
    """The whole file: title, a lead paragraph (HTML), contents, and the parts in order.

    The content security policy names the two scripts by their SHA-256, so no script of a notebook runs even if one got this far, and
    allows no request at all: pictures and style are inline.
    """
    from plotly.offline import get_plotlyjs

    plotly = get_plotlyjs()
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(_DRAW)}; style-src 'unsafe-inline'; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )
    contents = "".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in parts)
    sections = "\n".join(f'<section id="{name}">\n<h2>{escape(heading)}</h2>\n{html}\n</section>' for name, heading, html in parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header><h1>{escape(title)}</h1>
{lead}
<noscript><p>Charts need JavaScript. Each chart's data stands in the table below it.</p></noscript></header>
<nav aria-label="Contents"><ol>{contents}</ol></nav>
<main>
{sections}
</main>
<footer class="quiet">Brackets hold 95 % intervals. This file is complete: it opens offline and sends nothing.</footer>
<script>{plotly}</script>
<script>{_DRAW}</script>
</body>
</html>
"""


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
