"""docs/tools/site.py: how pages become a site. Whether Sphinx builds it: `make site`, in CI."""

import json
from pathlib import Path

import pytest

from docs.tools.site import (
    CHILDREN,
    CONTENTS,
    adapt_links,
    copy_pages,
    find_targets,
    list_versions,
    read_groups,
    read_version,
    render_toctree,
    write_versions,
)
from lb_stream import __version__

PROJECT = Path(__file__).parents[2]
PAGES = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *(
        str(page.relative_to(PROJECT))
        for folder in (
            *("docs", "schemas", "notebooks", "tests/data", "tests/conformance"),
            "conf/deploy/chart",
        )
        for page in (PROJECT / folder).rglob("*.md")
    ),
]


def test_the_navigation_has_four_groups_and_each_page_of_docs_once() -> None:
    groups = read_groups((PROJECT / CONTENTS).read_text())
    assert [group.name for group in groups] == ["Tutorial", "How-to", "Reference", "Explanations"]
    listed = [
        page
        for group in groups
        for parent, children in group.pages.items()
        for page in (parent, *children)
    ]
    assert len(listed) == len(set(listed))
    pages = {f"docs/{page.name}" for page in (PROJECT / "docs").glob("*.md")} - {CONTENTS}
    assert pages <= set(listed) <= set(PAGES)


def test_pages_below_a_page_are_nested_and_an_item_without_a_link_only_gathers() -> None:
    (group,) = read_groups(
        "# All\n\n## One\n\n- [A](a.md)\n  - [B](b.md): words\n- Some\n  - [C](../c.md)\n"
    )
    assert (group.name, group.pages) == ("One", {"docs/a.md": ["docs/b.md"], "c.md": []})


def test_all_pages_and_what_they_link_to_are_copied_with_the_navigation(tmp_path: Path) -> None:
    copy_pages(PROJECT, PAGES, tmp_path)
    home = (tmp_path / "index.md").read_text()
    assert home.startswith((PROJECT / "README.md").read_text()[:200])
    assert home.count("```{toctree}") == 4 and "\ndocs/overview\n" in home
    (parent,) = CHILDREN
    assert "decisions/0001-a-move-is-two-decisions\n" in (tmp_path / parent).read_text()
    assert (tmp_path / "docs" / "pictures" / "demo.svg").is_file()
    assert (tmp_path / "conf" / "prometheus.yml").is_file()
    assert (tmp_path / CONTENTS).read_text().startswith("---\norphan: true\n---\n")
    assert not (tmp_path / "docs" / "overview.md").read_text().startswith("---")


def test_a_link_to_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (project / CONTENTS).write_text("## One\n")
    (project / "README.md").write_text("[x](docs/none.yml)\n")
    with pytest.raises(ValueError, match=r"README\.md: links to docs/none\.yml"):
        copy_pages(project, ["README.md", CONTENTS], tmp_path / "copy")


def test_links_to_the_readme_lead_home_and_those_to_folders_are_words_only() -> None:
    page = (
        "[a](../README.md#two-commands) [b](queries) [c](rules.md) [d](https://pulsar.apache.org)"
    )
    assert adapt_links(PROJECT, "docs/tables.md", page) == (
        "[a](../index.md#two-commands) b [c](rules.md) [d](https://pulsar.apache.org)"
    )


def test_targets_are_found_across_lines_and_without_their_fragments() -> None:
    page = "![a\nb](pictures/a.png) [c](../LICENSE#x) [d](#here) [e](https://pulsar.apache.org)"
    assert find_targets("docs/x.md", page) == ["docs/pictures/a.png", "LICENSE"]


def test_the_directive_of_a_nested_page_names_others_from_there() -> None:
    tree = render_toctree("", ["docs/a.md", "schemas/README.md"], Path("docs"))
    assert tree == "\n```{toctree}\n:hidden:\n\na\n../schemas/README\n```\n"


def test_versions_are_listed_newest_first_and_the_first_page_leads_to_the_newest(
    tmp_path: Path,
) -> None:
    for name in ("0.9.0", "0.10.1", "0.2.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    (tmp_path / "unfinished").mkdir()
    assert list_versions(tmp_path) == ["0.10.1", "0.9.0", "0.2.0"]
    write_versions(tmp_path)
    assert "url=0.10.1/index.html" in (tmp_path / "index.html").read_text()
    script = (tmp_path / "versions.js").read_text()
    assert json.loads(script.split("=", 1)[1].strip().rstrip(";"))[0] == "0.10.1"


def test_the_site_has_the_version_of_the_package() -> None:
    assert read_version() == __version__
