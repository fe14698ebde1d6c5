"""Photographs a page as a reader first sees it, in the light theme.

usage: picture.py PAGE FILE, with the interpreter of tests/requirements.txt
"""
import pathlib
import sys

from stage import Stage, wait_painted


def main(page, file):
    stage = Stage()
    window = stage.browser.new_page(viewport={"width": 1240, "height": 984}, color_scheme="light")
    window.goto(pathlib.Path(page).resolve().as_uri())
    wait_painted(window)
    window.screenshot(path=file)
    stage.close()


main(*sys.argv[1:])
