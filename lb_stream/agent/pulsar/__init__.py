"""Apache Pulsar's brokers as an agent's adapter, through their admin API and their load data."""
