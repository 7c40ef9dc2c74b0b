"""Code blocks of the pages below docs/, which tests run as they are."""

import os
import re

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def page(name):
    """Text of a page."""
    with open(os.path.join(DOCS, name), encoding="utf-8") as file:
        return file.read()


def blocks(name, language):
    """The code blocks of a page in this language."""
    return fenced(page(name), language)


def fenced(text, language):
    """The code blocks of a text in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
