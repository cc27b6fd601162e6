"""Commands that run or prepare something: the job, agents, servers, Kafka, topics, tables."""
