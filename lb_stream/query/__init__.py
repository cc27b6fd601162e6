"""Reads the state of the job and its clusters from the tables, without a JVM. Prints nothing."""


class QueryError(Exception):
    """The tables can't answer a query. The message has the reason, and what to do.

    `code`: lbctl's exit code, 1 for a failure, 2 for a wrong argument.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class NoTables(QueryError):
    """The folder of tables is empty."""
