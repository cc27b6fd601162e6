"""For developers and first minutes: the demo, an embedded Kafka broker, the fetching of jars.

Nothing of the job imports this room.
"""
