"""An executed notebook as a section of the page.

A notebook's HTML is not trusted: what is not on a short list of tags and attributes is dropped, scripts and styles with their content.
Only data: images stay, only links to web pages stay, and the page's content security policy stops whatever would still slip through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from accel_helpers.charts import MIME
from accel_helpers.errors import StoreError
from accel_helpers.report.figures import from_json, scrolling, spoken

_ALLOWED = """
    a abbr b blockquote br caption code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img kbd li mark ol p pre s samp small span strong
    sub summary sup table tbody td tfoot th thead tr u ul var
"""
_TAGS = frozenset(_ALLOWED.split())
_ATTRIBUTES = {"abbr": ("title",), "ol": ("start",), "th": ("scope", "colspan", "rowspan"), "td": ("colspan", "rowspan")}
_WIDGET = "application/vnd.jupyter.widget-view+json"
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Section:
    """One executed notebook as HTML.

    Attributes:
        title: its first heading, or the file's name.
        html: the section's content, below a heading of level 2.
        failed: the name of the exception that stopped it, or empty.

    Raises:
        StoreError: the file cannot be read or is not a notebook.
    """

    def __init__(self, path: Path) -> None:
        self._level = 2
        self._last = ""  # the sentence of the chart just drawn
        self.failed = ""
        cells = _read(path)
        self.title = path.stem
        if cells and cells[0].cell_type == "markdown" and (found := re.match(r"\s*#\s+(.+?)\s*(?:\n|$)", cells[0].source)):
            self.title = re.sub(r"[*_`]", "", found[1])
            cells[0].source = cells[0].source[found.end() :]
        self.html = "\n".join(part for number, cell in enumerate(cells, 1) if (part := self._cell(cell, number)))

    def _cell(self, cell: Any, number: int) -> str:
        if cell.cell_type == "markdown":
            return self._markdown(cell.source, cell.get("attachments", {}))
        if cell.cell_type != "code" or not cell.source.strip():
            return ""
        self._last = ""
        code = f"<details class=code><summary>Code of cell {number}</summary><pre>{escape(cell.source)}</pre></details>"
        outputs = [self._output(output, number) for output in cell.get("outputs", [])]
        return "\n".join([code, *(f'<div class="output">{output}</div>' for output in outputs if output)])

    def _output(self, output: Any, number: int) -> str:
        if output.output_type == "stream":
            return f"<pre>{_plain(output.text)}</pre>"
        if output.output_type == "error":
            self.failed = output.ename
            return f"<pre class=error>{_plain(chr(10).join(output.traceback) or f'{output.ename}: {output.evalue}')}</pre>"
        return self._bundle(output.get("data", {}), number)

    def _bundle(self, data: Mapping[str, Any], number: int) -> str:
        """The richest form that a page without scripts of its own can show."""
        if MIME in data:
            self._last = spoken(data[MIME])[0]
            return from_json(data[MIME])
        if self._last and self._last in (data.get("text/markdown"), data.get("text/plain")):
            return ""  # a notebook says the sentence below its chart; the page has it there already
        if _WIDGET in data:
            return "<p class=quiet>A control stands here. Open the notebook to use it.</p>"
        if "text/html" in data:
            return self._clean(data["text/html"])
        if "text/markdown" in data:
            return self._markdown(data["text/markdown"], {})
        return _picture(data, number) or f"<pre>{_plain(str(data.get('text/plain', '')))}</pre>"

    def _markdown(self, source: str, attachments: Mapping[str, Any]) -> str:
        from nbconvert.filters.markdown_mistune import InvalidNotebook, IPythonRenderer, MarkdownWithMath

        renderer = IPythonRenderer(escape=False, exclude_anchor_links=True, attachments=dict(attachments))
        try:
            return self._clean(MarkdownWithMath(renderer=renderer).render(source))
        except InvalidNotebook:  # an attachment that is not there
            return f"<pre>{escape(source)}</pre>"

    def _clean(self, html: str) -> str:
        import bleach  # type: ignore[import-untyped]

        without = re.sub(r"(?is)<(script|style)\b.*?(</\1\s*>|$)", "", html)
        safe = bleach.clean(without, tags=_TAGS, attributes=_allowed, protocols=("http", "https", "data"), strip=True)
        return self._headings(_tables(re.sub(r"<img[^>]*>", _described, safe)))

    def _headings(self, html: str) -> str:
        """Headings below the section's own, one level deeper at a time."""

        def level(tag: re.Match[str]) -> str:
            if not tag[1]:
                self._level = max(3, min(int(tag[2]) + 1, self._level + 1, 6))
            return f"<{tag[1]}h{self._level}>"

        return re.sub(r"<(/?)h([1-6])>", level, html)


def _read(path: Path) -> list[Any]:
    import nbformat

    try:
        cells: list[Any] = nbformat.read(path, as_version=4).cells
    except OSError as error:
        raise StoreError(f"The notebook {path} cannot be read: {error.strerror}.", "Run it again.") from None
    except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as error:
        raise StoreError(
            f"{path} is not a notebook: {type(error).__name__}.", "Run it again; a killed run may have left half a file."
        ) from None
    return cells


def _allowed(tag: str, name: str, value: str) -> bool:
    """Whether an attribute stays."""
    if tag == "img":
        return name == "alt" or (name == "src" and re.match(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,", value) is not None)
    if tag == "a":
        return name == "href" and value.startswith(("https://", "http://"))
    return name in _ATTRIBUTES.get(tag, ())


def _described(image: re.Match[str]) -> str:
    """An image with a text in its place; only the text where the image was not inside the notebook."""
    alt = re.search(r'alt="([^"]+)"', image[0])
    if "src=" not in image[0]:
        return f"[picture not included: {alt[1] if alt else 'no description'}]"
    return image[0] if alt else image[0].replace("<img", '<img alt="no description"')


def _tables(html: str) -> str:
    """Tables that scroll, whose header cells say what they head."""

    def head(found: re.Match[str]) -> str:
        return found[0].replace("<th>", '<th scope="col">')

    scoped = re.sub(r"(?s)<thead>.*?</thead>", head, html).replace("<th>", '<th scope="row">')
    named = re.sub(r'<th scope="\w+">\s*</th>', "<td></td>", scoped)
    return re.sub(r"(?s)<table>.*?</table>", lambda found: scrolling(found[0], "Table", tight=False), named)


def _picture(data: Mapping[str, Any], number: int) -> str:
    alt = f'alt="Picture made by cell {number}"'
    for mime in _IMAGES:
        if mime in data:
            return f'<img src="data:{mime};base64,{escape("".join(str(data[mime]).split()))}" {alt}>'
    if "image/svg+xml" in data:  # as an image, a drawing cannot run scripts
        import base64

        return f'<img src="data:image/svg+xml;base64,{base64.b64encode(str(data["image/svg+xml"]).encode()).decode()}" {alt}>'
    return ""


def _plain(text: str) -> str:
    """Terminal output without colours, and of a line that was overwritten only what stayed."""
    from nbconvert.filters import strip_ansi

    return escape("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in strip_ansi(text).split("\n")))
