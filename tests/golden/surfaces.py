"""Terminal, page and card as plain text, without what differs by day and machine."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

#: What is put in place of what; in this order.
NORMAL = (
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\b[0-9a-f]{12,}\b", "HASH"),
    (r"\b\d{4}-\d{2}-\d{2}\b", "DATE"),
    (r"\b(python|pffl|numpy|scipy|daqp|torch) \d+(\.\w+)+", r"\1 VERSION"),
    (r" *-?\b\d+(\.\d+)?e-(09|[1-9]\d)\b", " TINY"),
    (r"\b\d+(\.\d+)?e\+\d+\b", "HUGE"),
    (r"\b\d[\d,.]* s\b", "SECONDS s"),
    (r"all [\d,]+ claims", "all NUMBER claims"),
    (r"source = \S+", "source = PATH"),
    (r"[ \t]+\n", "\n"),
)
#: Elements that end a line, and those whose text is no text.
BLOCKS = {
    "article", "dd", "details", "div", "dt", "h1", "h2", "h3", "h4", "li", "p", "pre",
    "section", "summary", "table", "title", "tr", "ul",
}  # fmt: skip
UNSEEN = {"style"}


def normal(text: str) -> str:
    """Return text without dates, versions, hashes, seconds and rounding errors."""
    for pattern, to in NORMAL:
        text = re.sub(pattern, to, text)
    return text.rstrip() + "\n"


class _Text(HTMLParser):
    """The text of a page, a line for each block, cells of a table apart by bars."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.line, self.unseen, self.kept = "", 0, 0
        self.script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag in BLOCKS:
            self.end_line()
        if tag in ("td", "th"):
            self.line += " | "
        if tag == "script":
            self.script = known.get("type") or "code"
        if tag == "pre":
            self.kept += 1
        self.unseen += tag in UNSEEN
        for name in ("aria-label", "content"):
            if known.get(name) and tag in ("meta", "div", "svg", "table", "article"):
                self.line += f"[{known[name]}] "

    def handle_endtag(self, tag: str) -> None:
        self.unseen -= tag in UNSEEN
        if tag == "script":
            self.script = ""
        if tag in BLOCKS:
            self.end_line()
        if tag == "pre":
            self.kept -= 1

    def handle_data(self, data: str) -> None:
        if self.unseen or self.script == "code":
            return
        if self.script:
            self.end_line()
            self.lines += _rounded(json.loads(data)).split("\n")
        elif self.kept:
            self.lines += data.split("\n")
        else:
            self.line += re.sub(r"\s+", " ", data)

    def end_line(self) -> None:
        line = re.sub(r" +", " ", self.line).strip()
        if line:
            self.lines.append(line)
        self.line = ""


def _rounded(value: object) -> str:
    """What a script of the page reads, numbers with six digits."""
    text = json.dumps(value, ensure_ascii=False, indent=0)
    return re.sub(r"-?\d+\.\d{4,}(e-?\d+)?", lambda m: f"{float(m[0]):.6g}", text)


def page_text(page: str, card: str) -> str:
    """Return the text of a page without the card and the certificate in it."""
    reader = _Text()
    inside = r'<script type="application/json" id="certificate">.*?</script>'
    reader.feed(re.sub(inside, "", page, flags=re.S))
    reader.end_line()
    text = normal("\n".join(reader.lines))
    return text.replace(card, "[card.md]\n")
