"""Who may do what in Kafka: rights of each role, logins, and what a refusal means. Shared by the job, agents, commands and lookups."""
