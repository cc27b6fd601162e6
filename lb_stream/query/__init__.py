"""What the tables tell: read models without a JVM. Nothing is printed here."""


class QueryError(Exception):
    """The tables can't answer.

    The text says why and what to do; `code` is lbctl's exit code (1 failed, 2 asked wrongly).
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class NoTables(QueryError):
    """There is no table yet."""
