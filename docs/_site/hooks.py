"""Hooks of MkDocs: pages made from the program, and links that leave ``docs/``.

``mkdocs.yml`` names this file. Pages in ``docs/`` are written for a repository host: a link to a file outside ``docs/``
leads, on the site, to that file's page or copy.
"""

from __future__ import annotations

import posixpath
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from attack_reference import attacks
from columns_reference import columns
from command_reference import commands
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from notebook_pages import notebook
from python_reference import PAGES as PYTHON, python_pages
from scenario_layout import PAGES as SCENARIO
from scenario_reference import scenario_pages

from vflsim.shipped import shipped, title

ROOT = Path(__file__).parents[2]
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository's root, and their pages."""
SCENARIOS = "reference/scenarios.md"
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages of the reference into the navigation."""
    (reference,) = (entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    for entry in reference:
        if "Scenario file" in entry:
            entry["Scenario file"] = [f"reference/scenario/{name}.md" for name in SCENARIO]
        if "Python" in entry:
            entry["Python"] = [f"reference/python/{name}.md" for name in PYTHON]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in OUTSIDE.items() if page != "index.md"}
    pages |= {f"reference/scenario/{name}.md": text for name, text in scenario_pages().items()}
    pages |= {f"reference/python/{name}.md": text for name, text in python_pages().items()}
    pages |= {"reference/commands.md": commands(), "reference/columns.md": columns(), SCENARIOS: scenarios()}
    pages["reference/attacks.md"] = attacks()
    for source in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(source)
        pages[str(Path(source.src_uri).with_suffix(".md"))] = notebook(Path(source.abs_src_path or ""))
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for file in sorted((ROOT / "scenarios").rglob("*.*")):
        files.append(File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Turn links that leave ``docs/`` into links of the site."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    outside = (here in OUTSIDE.values() and here != "index.md") or here.startswith("scenarios/")
    folder = posixpath.join("" if outside else "docs", posixpath.dirname(here))

    def site_link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], posixpath.normpath(posixpath.join(folder, match[2])), match[3] or ""
        if target.startswith("docs/"):
            target = re.sub(r"\.ipynb$", ".md", target.removeprefix("docs/"))
        elif target in OUTSIDE:
            target = OUTSIDE[target]
        elif target.startswith("scenarios") and (ROOT / target).is_dir():
            target, anchor = SCENARIOS, f"#{posixpath.basename(target)}"
        elif not target.startswith("scenarios/"):
            return text[1:-1]  # a file of the program, which the site does not have
        return f"{text}({posixpath.relpath(target, posixpath.dirname(here))}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(site_link, part) for part in parts)


def on_page_content(html: str, **_: Any) -> str:
    """Remove what Markdown does not know from docstrings: roles of cross-references, and the colon before code."""
    html = html.replace("::</p>", ":</p>")
    return re.sub(r":(?:attr|class|data|func|mod):(?=<code>)", "", html)


def scenarios() -> str:
    """Write the page of the scenarios that come with vflsim."""
    page = [
        "# Scenarios that come with vflsim",
        "`vflsim run NAME` runs one; `vflsim new MINE --from NAME` copies one.",
    ]
    for folder, names in groupby(shipped(), key=posixpath.dirname):
        if folder:
            page.append(f"## {folder}")
        rows = [f"| [`{name}`](../scenarios/{name}.yaml) | {title(shipped()[name])} |" for name in names]
        page.append("\n".join(["| scenario | shows |", "|---|---|", *rows]))
    return "\n\n".join(page) + "\n"
