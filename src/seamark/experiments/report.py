"""One self-contained HTML page for a run: what was run, the verdict, tables, figures, what is missing, how to repeat.

The page loads nothing (no script, no font, no link), reads well without a style sheet, and escapes whatever it shows.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.experiments.summary import Summary
from seamark.experiments.tables import Table, format_number, to_html

_CAPTIONS = {
    "learning_curve": "The deployed policy on held-out data, over rounds. Line: mean over seeds; band: one "
    "standard deviation. Dashed: the baseline. A gated method stays on the baseline until its first deployment. "
    "Curves that coincide are dashed over each other.",
    "cumulative_reward": "Cumulative reward minus what the baseline earned on the same rounds; below the dashed line "
    "exploration cost more than it has brought so far. Line: mean over seeds; band: one standard deviation.",
    "bounds": "What each gate saw, first seed. A gate with bounds deploys where the candidate's lower bound "
    "reaches the deployed policy's upper bound; the challenger gate where log evidence reaches its threshold. "
    "Vertical lines: deployments; red: to a policy of lower true value. Bounds are cut off where no reward can be.",
}
_FIRST = ("command", "data", "seeds", "versions")  # of meta, in this order; what else it holds follows


def write_report(
    path: str | Path,
    summary: Summary,
    tables: Sequence[Table],
    figures: Mapping[str, str],
    meta: Mapping[str, Any],
) -> Path:
    """Write the report of a run to `path`, whole or not at all, and return the path.

    figures: SVG text by name, shown in this order. meta: what was run, any of ``command``, ``data``, ``seeds``,
    ``versions`` and others, shown as they are; ``title`` heads the page, ``config`` goes into the details at the end.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(render_report(summary, tables, figures, meta), encoding="utf-8")
    os.replace(partial, path)
    return path


def render_report(
    summary: Summary, tables: Sequence[Table], figures: Mapping[str, str], meta: Mapping[str, Any]
) -> str:
    """The report as HTML text."""
    title = str(meta.get("title", "Seamark run"))
    verdict = "".join(f"<li>{html.escape(sentence)}</li>\n" for sentence in verdicts(summary))
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        section("What was run", _facts(summary, meta)),
        section("Verdict", f'<ul class="verdict">\n{verdict}</ul>'),
        section("Tables", "".join(map(to_html, tables))) if tables else "",
        section("Figures", "".join(map(_figure, figures, figures.values()))) if figures else "",
        section("Skipped and failed", _missing(summary)),
        section("Configuration", _details(meta.get("config", {}))),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def verdicts(summary: Summary) -> list[str]:
    """The run in sentences, one or two per method, every number from the summary."""
    if not summary["methods"]:
        return ["No cell of this run succeeded: there is nothing to say about any method."]
    sentences = [
        f"{name} {_deployed(method)} {_ended(summary, name, method)}" for name, method in summary["methods"].items()
    ]
    n_failed, n_skipped = len(summary["failed"]), len(summary["skipped"])
    if n_failed:
        sentences.append(f"{_count(n_failed, 'cell')} failed and {_be(n_failed)} missing from every number here.")
    if n_skipped:
        sentences.append(f"{_count(n_skipped, 'method')} {_be(n_skipped)} skipped; the reasons are below.")
    return sentences


def inline_svg(svg: str, prefix: str) -> str:
    """SVG text to stand inside HTML: without prolog and metadata, every id and reference to it under `prefix`."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href=", "href=")
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = body.replace('href="#', f'href="#{prefix}-').replace("url(#", f"url(#{prefix}-")
    # matplotlib's one style sheet, "*{stroke-linejoin: round; ...}", would hold for the whole page
    body = re.sub(r"<style[^>]*>\s*\*", f'<style type="text/css">#{prefix} *', body)
    return re.sub(r"<svg\b", f'<svg id="{prefix}" role="img" aria-labelledby="{prefix}-caption"', body, count=1)


def _deployed(method: Mapping[str, Any]) -> str:
    seeds = _count(method["n_seeds"], "seed")
    if method["acts"] == "learner":
        return f"has no gate and decided round by round, in {seeds}."
    total, unsafe = method["deployments"]["total"], method["unsafe_deployments"]
    if not total:
        why = f"checked {_count(method['checks'], 'time')} and held" if method["checks"] else "never deploys"
        return f"{why}: the baseline acted to the end in {seeds}."
    return f"deployed {_count(total, 'time')} in {seeds}, {unsafe:,} to a truly worse policy."


def _ended(summary: Summary, name: str, method: Mapping[str, Any]) -> str:
    """Where the method ended relative to the baseline, and how far below it ever was."""
    metric, word = (
        ("relative_ndcg10", "nDCG@10") if summary["setting"].get("task") == "ranking" else ("relative_reward", "reward")
    )
    found = method["series"].get(metric)
    end = found["mean"][-1] if found else None
    shortfall = method["worst_shortfall"]
    if end is None:
        ended = f"Its cumulative {word} at the end is not known"
    elif end == 0:
        ended = f"It ended level with the baseline in cumulative {word}"
    else:
        side = "above" if end > 0 else "below"
        ended = f"It ended {_plain(abs(end))} {side} the baseline in cumulative {word}"
        ended += " (mean over seeds)" if method["n_seeds"] > 1 else ""
    test = summary["test"]
    mark = found["mark"][-1] if found else ""
    if mark:
        kind = "gain" if mark == test["gain"] else "loss"
        ended += f", a significant {kind} against {test['versus']}"
    certified = "click-DCG@10" if word == "nDCG@10" else word
    if shortfall is None:
        return f"{ended}; its worst shortfall is not known."
    if shortfall == 0:
        return f"{ended}; its cumulative expected {certified} never fell below the baseline's."
    return f"{ended}; its cumulative expected {certified} fell at worst {_plain(-shortfall)} below the baseline's."


def _plain(value: float) -> str:
    return format_number(value, 0 if abs(value) >= 100 else 1 if abs(value) >= 1 else 3)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def section(title: str, body: str) -> str:
    return f"<section>\n<h2>{html.escape(title)}</h2>\n{body}\n</section>"


def _facts(summary: Summary, meta: Mapping[str, Any]) -> str:
    shown = {key: meta[key] for key in _FIRST if key in meta}
    shown.setdefault("seeds", summary["seeds"])
    shown |= {key: value for key, value in summary["setting"].items() if key not in shown}
    shown |= {key: value for key, value in meta.items() if key not in {*shown, "title", "config"}}
    rows = "".join(
        f"<dt>{html.escape(str(key))}</dt><dd>{fact(key, value)}</dd>\n"
        for key, value in shown.items()
        if value not in (None, [], {}, "")
    )
    return f'<dl class="facts">\n{rows}</dl>'


def fact(key: str, value: Any) -> str:  # anything that JSON holds
    if key == "command":
        words = value if isinstance(value, str) else " ".join(map(str, value))
        return f"<code>{html.escape(words)}</code>"
    if isinstance(value, Mapping):
        return html.escape(", ".join(f"{name} {one}" for name, one in value.items()))
    if isinstance(value, list | tuple):
        return html.escape(", ".join(map(str, value)))
    return html.escape(f"{value:,}" if key == "rounds" and isinstance(value, int) else str(value))


def _figure(name: str, svg: str) -> str:
    prefix = "figure-" + re.sub(r"[^A-Za-z0-9-]+", "-", name)
    caption = html.escape(_CAPTIONS.get(name, name.replace("_", " ").capitalize() + "."))
    return (
        f'<figure class="plot">\n<div class="scroll">{inline_svg(svg, prefix)}</div>\n'
        f'<figcaption id="{prefix}-caption">{caption}</figcaption>\n</figure>\n'
    )


def _missing(summary: Summary) -> str:
    if not summary["skipped"] and not summary["failed"]:
        return "<p>None: every method ran on every seed.</p>"
    skipped = (f"{one['method']}: skipped. {one['reason']}" for one in summary["skipped"])
    failed = (
        f"{one.get('method')}, seed {one.get('seed')} ({one.get('id')}): failed. {one.get('error')}"
        for one in summary["failed"]
    )
    return bullets([*skipped, *failed])


def bullets(items: Iterable[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{html.escape(item)}</li>\n" for item in items) + "</ul>"


def _details(config: Any) -> str:  # anything that JSON holds
    text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
    return f"<details>\n<summary>Full configuration</summary>\n<pre>{html.escape(text)}</pre>\n</details>"


CSS = """\
:root {
  color-scheme: light dark;
  --text: #1b1f24; --soft: #57606a; --line: #d0d7de; --page: #ffffff; --band: #f6f8fa;
}
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --soft: #9aa4af; --line: #3b434c; --page: #14181d; --band: #1d232a; }
}
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 .5rem; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { background: var(--band); padding: 1rem; overflow-x: auto; overflow-wrap: normal; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; margin: 0; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.verdict li { margin-bottom: .35rem; }
figure { margin: 0 0 2rem; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .5rem; max-width: 50rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .3rem .6rem; text-align: right; }
th:first-child { text-align: left; }
thead th { border-bottom: 2px solid var(--line); white-space: normal; vertical-align: bottom; }
thead th + th { padding-right: calc(.6rem + .9em); }
tbody th { font-weight: 500; white-space: normal; min-width: 9rem; }
tbody tr:nth-child(even) { background: var(--band); }
.mark { display: inline-block; width: 1.2em; font-size: .75em; }
.unmarked .mark { display: none; }
.unmarked thead th + th { padding-right: .6rem; }
.plot .scroll { background: #ffffff; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
.plot svg { display: block; width: 100%; min-width: 34rem; height: auto; }
summary { cursor: pointer; }
"""
