"""The commands of the simulator: a module a command, its flags and what it prints."""
