"""Settings: their layers, and what each cluster runs with. The core gets only the result.

The layers, each over those before it: a key's default, the profile, Pulsar's broker.conf, the TOML
file (`[balancer]`, then `[cluster.NAME]`), the environment, `--set`, operators' commands.

| module | what it does |
|---|---|
| `load` | builds and checks the job's settings |
| `layers` | reads one layer: a file, the environment, an argument |
| `resolve` | checks one cluster's settings, and builds what its rounds run with |
| `overrides` | applies operators' commands about settings |
| `move_limits` | resolves the settings that limit moves, without any strategy |
| `load_managers` | chooses the load manager and the shedder |
| `shadows` | resolves a shadow's settings over its cluster's |
| `usage` | finds who reads a key |
| `explain` | lists each key with its value and where it was given |
| `differing` | compares a broker's settings in force with those here |
| `spelling`, `names` | translate Pulsar's names to ours |
| `files`, `secrets` | read files of settings; hide secrets |
"""
