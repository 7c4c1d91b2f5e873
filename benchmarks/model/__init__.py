"""A discrete-event simulation of many nodes, each with a worker and a server: docs/scale.md.

It has no clock but its own and draws from a seeded generator, so a run gives the same figures each
time. `constants` reads what was measured; `engine` has queues and events; `load` says who reads
what; `play` simulates that; `page` makes the tables.
"""
