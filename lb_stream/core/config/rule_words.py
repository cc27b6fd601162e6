"""The words of a rule in a setting: name=value, with spaces between them."""


def read_words(text: str) -> dict[str, str]:
    """Return name → value. Raises ValueError for a word of another form, or a name given twice."""
    given: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if name in given:
            raise ValueError(f"{name} is given twice")
        if not equals or not value:
            raise ValueError(f"{word} is no name=value")
        given[name] = value
    return given
