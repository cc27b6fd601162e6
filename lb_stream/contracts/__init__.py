"""The records and settings that cross the project's borders: pydantic models, table schemas, JSON Schemas.

Everything that another program reads or writes (topics, tables, configuration) is defined here and nowhere else.
"""
