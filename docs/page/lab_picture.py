"""The picture of the README: python3 docs/page/lab_picture.py [build/site [docs/results/lab.svg]].

Trains the sorter in the lab, in a real browser, for STEPS steps, and draws the contents of the page: test arrays and
answers, loss and accuracy of every step, and attention maps. Equal sites give equal bytes.
"""

from __future__ import annotations

import re
import sys
import time
from html import escape
from pathlib import Path

import browser_test
from browser_test import Browser

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs/results/lab.svg"
STEPS = 50  # enough for mostly correct answers with a few errors
WIDTH, HEIGHT = 1000, 700
LEFT, TOP = 30, 40

STYLE = """
:root { --paper: #fdfdfb; --ink: #1c1c1e; --faint: #5c5f66; --rule: #d8d8d2; --link: #0b57a4; --forward: #1f5fa8; --backward: #ab3d16; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e6e3; --faint: #b0b4ba; --rule: #383b42; --link: #8ab8f0; --forward: #7db0ef; --backward: #f0936a; }
}
.paper { fill: var(--paper); }
text { font: 12px system-ui, sans-serif; fill: var(--faint); }
.serif, .letter { font-family: Georgia, "Times New Roman", serif; }
.array { font-size: 22px; letter-spacing: 0.28em; }
.share { font-size: 28px; font-weight: 600; fill: var(--ink); }
.end { text-anchor: end; } .letter, .next { text-anchor: middle; } .next { font-size: 14px; }
.letter, .answer, .heading { fill: var(--ink); } .given { fill: var(--faint); } .wrong { fill: var(--backward); }
.heading { font-size: 15px; font-weight: 600; } .next { fill: var(--forward); } .next.wrong { fill: var(--backward); }
path { fill: none; } circle.score { fill: var(--forward); }
.grid { stroke: var(--rule); } .raw { stroke: var(--backward); opacity: 0.28; }
path.loss { stroke: var(--backward); stroke-width: 2.25; } path.score { stroke: var(--forward); stroke-width: 2.25; }
path.held { stroke: var(--ink); stroke-width: 2.25; stroke-dasharray: 7 4; } circle.held { fill: var(--ink); }
text.loss { fill: var(--backward); } text.score { fill: var(--forward); }
.arcs path { stroke: var(--forward); }
"""

READ = """return {
  rows: [...document.querySelectorAll(".example")].map((row) => [
    row.querySelector(".given").textContent,
    [...row.querySelectorAll(".answer b")].map((digit) => [digit.textContent, digit.className]),
    row.classList.contains("right")]),
  score: document.getElementById("how-right").textContent,
  curve: document.querySelector("#curve svg").outerHTML,
  arcs: document.querySelector("#arcs svg").outerHTML,
  command: document.getElementById("command").textContent,
}"""


def seen(site: Path) -> dict:
    """Contents of the page after STEPS steps."""
    browser_test.SITE = site
    browser = Browser()
    try:
        browser.resize(1280)
        browser.open("lab.html")
        until(browser, "return document.getElementById('how-right').textContent !== ''")
        browser.run(
            "const more = document.getElementById('settings').elements.more; more.value = arguments[0];"
            "more.dispatchEvent(new Event('change', {bubbles: true}))",
            f"--steps {STEPS}",
        )
        until(browser, f"return document.getElementById('state').textContent.startsWith('step 0 of {STEPS}')")
        # One step at a time, so that the scored steps are the same in every run.
        browser.run("document.getElementById('speed').value = 1; document.getElementById('train').click()")
        until(browser, "return document.getElementById('train').textContent === 'Train again'")
        browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return browser.run(READ)
    finally:
        browser.close()


def until(browser: Browser, script: str) -> None:
    while not browser.run(script):
        time.sleep(0.1)


def inner(svg: str, kind: str, x: float, y: float, scale: float = 1) -> str:
    """Embeds a drawing of the page as a group; its colours come from the style sheet alone."""
    body = re.sub(r"^<svg[^>]*>|</svg>$", "", svg)
    body = re.sub(r' stroke="rgb[^"]*"', "", body)
    return f'<g class="{kind}" transform="translate({x:g} {y:g}) scale({scale:g})">{body}</g>'


def drawn(page: dict) -> str:
    parts = [f'<text x="{LEFT}" y="{TOP}" class="heading">Test arrays</text>']
    for i, (given, answer, right) in enumerate(page["rows"]):
        y = TOP + 34 + 33 * i
        parts.append(f'<text x="{LEFT}" y="{y}" class="serif array given">{escape(given.replace(" ", ""))}</text>')
        parts.append(f'<text x="{LEFT + 130}" y="{y}" class="serif array">→</text>')
        digits = "".join(
            f'<tspan class="{"wrong" if kind == "wrong" else "answer"}">{escape(digit)}</tspan>' for digit, kind in answer
        )
        parts.append(f'<text x="{LEFT + 165}" y="{y}" class="serif array">{digits}</text>')
        if right:
            parts.append(f'<text x="{LEFT + 290}" y="{y}" class="score" style="font-size:15px">✓</text>')
    share, _, rest = page["score"].partition(" of ")
    y = TOP + 34 + 33 * len(page["rows"]) + 10
    parts.append(f'<text x="{LEFT}" y="{y}"><tspan class="share">{escape(share)}</tspan> of {escape(rest)}</text>')
    parts.append(inner(page["curve"], "curve", 375, TOP - 18, 0.94))
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', page["arcs"]).group(1))
    parts.append(f'<text x="{LEFT}" y="{y + 60}" class="heading">Attention maps of the last layer</text>')
    parts.append(inner(page["arcs"], "arcs", (WIDTH - width) / 2, y + 60))
    title = f"The lab: {page['command']}, after {STEPS} steps in a browser"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" class="paper"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> None:
    site = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else browser_test.SITE
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    out.write_text(drawn(seen(site)), encoding="utf-8")


if __name__ == "__main__":
    main()
