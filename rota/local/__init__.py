"""A cluster of real agent processes on this machine: what `rota up`, `rota demo`, the benches and the tests run on."""
