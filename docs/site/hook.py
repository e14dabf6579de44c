"""How the site is put together: the pages of `docs/` as they are, those that live elsewhere, and the reference.

A link between two files of the repository is one between their places on the site.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site import reference  # noqa: E402

ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that are not in `docs/`."""
SHOWN = ("deploy/**/*", "examples/*.py")
"""Files that pages point at."""
REMARKS = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
"""For the tests that run what the pages say."""
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, *, config: Any) -> Files:
    """Add what is not in `docs/`."""
    for name, written in reference.PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=written()))
    for name, path in reference.packs(ROOT).items():
        files.append(File.generated(config, f"packs/{name}.md", abs_src_path=str(path)))
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix != ".md":
                place = f"files/{path.relative_to(ROOT)}"
                files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Links as they are on the site."""
    here = source_of(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), link[1]))
        place = place_of(target)
        if here == target or files.get_file_from_path(place) is None:
            return link[0]
        return posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".") + (link[2] or "")

    return LINK.sub(moved, REMARKS.sub("", markdown))


def source_of(page: str) -> str:
    """Where in the repository a page is from."""
    elsewhere = {place: source for source, place in ELSEWHERE.items()}
    if page.startswith("packs/"):
        return f"policies/{page.removeprefix('packs/').removesuffix('.md')}/README.md"
    return elsewhere.get(page, f"docs/{page}")


def place_of(source: str) -> str:
    """Where on the site a file of the repository is."""
    if pack := re.fullmatch(r"policies/(\w+)/README\.md", source):
        return f"packs/{pack[1]}.md"
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    return ELSEWHERE.get(source, f"files/{source}")
