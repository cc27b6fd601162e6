"""Read the state of job and clusters from the tables, without a JVM. Nothing is printed here."""


class QueryError(Exception):
    """A question that the tables can't answer: the text says why, and what to do.

    `code`: lbctl's exit code, 1 for a failure, 2 for a wrong argument.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class NoTables(QueryError):
    """A folder in which there is no table yet."""
