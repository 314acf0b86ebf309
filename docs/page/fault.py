"""The error that stops the build of the page."""


class Fault(Exception):
    """A fault of the chapters or the code, with its place."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}: {text}")
