"""docs/root.md is the list with which live steps are compared."""

import root_page


def test_the_page_is_made_from_the_list():
    assert root_page.PAGE.read_text() == root_page.page_of(root_page.LIST.read_text()), "tests/style/root_page.py --write"
