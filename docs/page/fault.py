"""What stops the build of the page."""


class Fault(Exception):
    """A fault of the chapters or the code, with the place where it stands."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}: {text}")
