"""The commands of the simulator; each module has the flags of a command and prints its results."""
