"""What one cluster's settings come to, from all their layers. Above the core, which knows only the result.

The layers, a later one over an earlier one: a key's default, the profile, Pulsar's broker.conf, the
TOML file (`[balancer]`, then `[cluster.NAME]`), the environment, `--set`, operators' commands.

| module | what |
|---|---|
| `load` | files, environment and arguments → the job's settings, checked |
| `layers` | what one file, variable or argument gives |
| `resolve` | one cluster's settings → what its rounds run with |
| `overrides` | operators' commands: settings that lie over the job's own |
| `shadows` | a shadow's settings over its cluster's |
| `usage` | which keys a cluster reads |
| `explain` | each key with its value, and who gave it |
| `spelling`, `names` | our names and Pulsar's, brought to ours |
"""
